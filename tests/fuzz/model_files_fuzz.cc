// Small files of model folders and of other tools, by the first byte: vocab.txt (v), vocab.json and behind a
// byte 0 merges.txt (m), the index of shards (i), adapter_config.json (a), tokenizer_config.json (t),
// generation_config.json (g), dataset_info.json of LLaMA-Factory (d), a file of DeepSpeed (z).
#include <cmath>

#include "chat/chat_template.h"
#include "formats/model_folder.h"
#include "fuzz/target.h"
#include "recipe/load/load.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/tokenizer.h"
#include "weights/adapter_config.h"

using namespace plimsoll;

namespace {

void read_vocabularies(const FuzzFolder& folder, char kind, std::string_view text) {
  const auto [vocab, merges] = parted(text, '\0');
  folder.write("tokenizer_config.json", kind == 'v' ? R"({"tokenizer_class":"BertTokenizer"})"
                                                    : R"({"tokenizer_class":"GPT2Tokenizer"})");
  folder.write(kind == 'v' ? "vocab.txt" : "vocab.json", vocab);
  if (kind == 'm') folder.write("merges.txt", merges);
  const auto file = Tokenizer::find_file(folder.path());
  if (!file) return;
  const Tokenizer tokenizer = Tokenizer::from_file(*file);
  (void)tokenizer.decode(tokenizer.encode("a word, [MASK] and \xE4\xBD\xA0", true), false);
}

void read_tokens(const FuzzFolder& folder, const std::string& name, std::string_view text) {
  static const Tokenizer kTokenizer = Tokenizer::from_json(
      R"({"model":{"type":"WordLevel","vocab":{"<s>":0,"a":1},"unk_token":"<s>"}})", "t.json");
  folder.write(name, text);
  accepted([&] { read_special_tokens(folder.path(), kTokenizer); });
  if (const auto chat = ChatTemplate::of_folder(folder.path(), std::nullopt)) (void)chat->published();
}

void read_adapter(const FuzzFolder& folder, std::string_view text) {
  folder.write("adapter_config.json", text);
  LoraOptions lora;
  if (!accepted([&] { read_adapter_config(folder.path(), lora, false); })) return;
  check_internal(lora.r >= 1 && std::isfinite(lora.alpha), "an adapter that cannot be");
  for (const int64_t layer : lora.layers) check_internal(layer >= 0, "a layer below 0");
}

void read_beside(const FuzzFolder& folder, char kind, std::string_view text) {
  folder.write("rows.json", R"([{"instruction":"a","output":"b"}])");
  folder.write(kind == 'd' ? "dataset_info.json" : "zero.json", text);
  const std::string path = folder.path().string();
  const auto recipe = folder.write(
      "recipe.yaml", kind == 'd' ? "model_name_or_path: m\nstage: sft\ndataset: rows\ndataset_dir: " + path +
                                       "\noutput_dir: o\nper_device_train_batch_size: 1\n"
                                 : "base_model: m\ndatasets:\n  - path: " + path +
                                       "/rows.json\n    type: alpaca\ndeepspeed: " + path +
                                       "/zero.json\noutput_dir: o\nmicro_batch_size: 1\n");
  (void)load_recipe(recipe.string());
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const FuzzFolder folder;  // of all inputs, emptied before each
  const std::string_view text = text_of(data, size);
  if (text.empty()) return 0;
  const char kind = text.front();
  const std::string_view rest = text.substr(1);
  folder.clear();
  accepted([&] {
    if (kind == 'v' || kind == 'm') read_vocabularies(folder, kind, rest);
    if (kind == 'i') {
      folder.write("model.safetensors.index.json", rest);
      (void)ModelFolder::open(folder.path());
    }
    if (kind == 'a') read_adapter(folder, rest);
    if (kind == 't') read_tokens(folder, "tokenizer_config.json", rest);
    if (kind == 'g') read_tokens(folder, "generation_config.json", rest);
    if (kind == 'd' || kind == 'z') read_beside(folder, kind, rest);
  });
  return 0;
}
