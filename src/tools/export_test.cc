#include "tools/export.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "files/file.h"
#include "files/test_folder.h"
#include "formats/gguf_file.h"
#include "formats/load.h"
#include "formats/model_folder.h"
#include "models/model.h"
#include "ops/linear/nf4.h"
#include "tools/ollama.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Deals out values; the same for every test.
class Numbers {
 public:
  std::vector<float> next(int64_t count, float deviation) {
    std::normal_distribution<float> normal(0, deviation);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = normal(random_);
    return values;
  }

 private:
  std::mt19937 random_{11};
};

void write_text(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

void change_text(const fs::path& path, const std::string& from, const std::string& to) {
  std::string text = read_text(path, int64_t{64} << 20);
  const size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << path << ": " << from;
  text.replace(at, from.size(), to);
  write_text(path, text);
}

void change_bytes(const fs::path& path, int64_t at, const std::string& bytes) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(at);
  file << bytes;
}

// A model of random weights with the demo's tokenizer, an adapter over it, and rows.
class Exported : public ::testing::Test {
 protected:
  Exported() {
    fs::create_directories(base());
    fs::create_directories(adapter());
    for (const auto& entry : fs::directory_iterator("demo/model"))
      fs::copy_file(entry, base() / entry.path().filename());
    json config = json::parse(read_text(base() / "config.json", 1 << 20));
    config["num_hidden_layers"] = 2;
    write_text(base() / "config.json", config.dump());
    spec_ = read_model_spec(base() / "config.json");
    write_base();
    write_adapter();
    std::string rows;
    for (int i = 0; i < 4; ++i)
      rows += json{{"prompt", "Which city is the capital of country " + std::to_string(i)},
                   {"response", "Paris, or Oslo."}}
                  .dump() +
              "\n";
    write_text(folder_.path() / "rows.jsonl", rows);
  }

  void write_base() {
    const Graph graph = build_loss(spec_, {1, 1, 1}, DType::f32, 1, Mode::evaluate, "loss");
    std::vector<TensorSpec> specs;
    for (const Tensor& tensor : graph.tensors())
      if (tensor.role == Role::frozen_weight)
        specs.push_back({std::string(tensor.name), DType::f32, tensor.shape});
    SafetensorsWriter writer(base() / "model.safetensors", specs);
    for (const TensorSpec& spec : writer.tensors()) {
      auto values = numbers_.next(spec.shape.elements(), 0.1F);
      if (spec.shape.rank() == 1) std::fill(values.begin(), values.end(), 1.0F);
      writer.write(spec.name, std::as_bytes(std::span(values)));
    }
    writer.finish();
  }

  void write_adapter() {
    constexpr int64_t kRank = 4;
    std::vector<TensorSpec> specs;
    for (int64_t layer = 0; layer < spec_.layers; ++layer) {
      const std::string module =
          "base_model.model.model.layers." + std::to_string(layer) + ".self_attn.q_proj";
      specs.push_back({module + ".lora_A.weight", DType::f32, {kRank, spec_.hidden}});
      specs.push_back({module + ".lora_B.weight", DType::f32, {spec_.heads * spec_.head_dim, kRank}});
    }
    SafetensorsWriter writer(adapter() / "adapter_model.safetensors", specs);
    for (const TensorSpec& spec : writer.tensors()) {
      const auto values = numbers_.next(spec.shape.elements(), 0.3F);
      writer.write(spec.name, std::as_bytes(std::span(values)));
    }
    writer.finish();
    const json config = {{"peft_type", "LORA"},
                         {"r", kRank},
                         {"lora_alpha", 4},
                         {"target_modules", {"q_proj"}},
                         {"base_model_name_or_path", base().string()}};
    write_text(adapter() / "adapter_config.json", config.dump());
  }

  // Writes the base anew as bitsandbytes stores it: weights of the layers as codes and scales.
  void store_base_in_four_bits() {
    const ModelFolder plain = ModelFolder::open(base());
    std::vector<TensorSpec> specs;
    std::map<std::string, std::vector<std::byte>> bytes;
    const auto add = [&](const std::string& name, DType dtype, const Shape& shape,
                         std::span<const std::byte> from) {
      specs.push_back({name, dtype, shape});
      bytes[name].assign(from.begin(), from.end());
    };
    std::vector<std::byte> staging(1 << 16);
    for (const std::string& name : plain.names()) {
      const Shape shape = plain.find(name).entry->shape;
      std::vector<float> values(static_cast<size_t>(shape.elements()));
      load_elements(plain.find(name), 0, std::as_writable_bytes(std::span(values)), DType::f32, staging);
      if (name.find("_proj") == std::string::npos) {
        add(name, DType::f32, shape, std::as_bytes(std::span(values)));
        continue;
      }
      std::vector<uint8_t> codes(values.size() / 2);
      std::vector<float> scales(values.size() / kNf4Block);
      avx2::nf4_quantize({values.data(), std::ssize(values), codes.data(), scales.data()});
      const std::string state = json{
          {"quant_type", "nf4"},
          {"blocksize", 64},
          {"shape", {shape[0], shape[1]}},
          {"dtype", "float32"}}.dump();
      add(name, DType::u8, {std::ssize(codes), 1}, std::as_bytes(std::span(codes)));
      add(name + ".absmax", DType::f32, {std::ssize(scales)}, std::as_bytes(std::span(scales)));
      add(name + ".quant_map", DType::f32, {16}, std::as_bytes(std::span(kNf4Levels)));
      add(name + ".quant_state.bitsandbytes__nf4", DType::u8, {std::ssize(state)}, as_bytes(state));
    }
    fs::remove(base() / "model.safetensors");
    SafetensorsWriter writer(base() / "model.safetensors", specs);
    for (const TensorSpec& spec : writer.tensors()) writer.write(spec.name, bytes.at(spec.name));
    writer.finish();
    json config = json::parse(read_text(base() / "config.json", 1 << 20));
    config["quantization_config"] = {
        {"load_in_4bit", true}, {"bnb_4bit_quant_type", "nf4"}, {"quant_method", "bitsandbytes"}};
    write_text(base() / "config.json", config.dump());
  }

  [[nodiscard]] ExportOptions options(ExportTo to) const {
    ExportOptions options;
    options.folder = adapter();
    options.data = folder_.path() / "rows.jsonl";
    options.limit = 4;
    options.to = to;
    options.target = folder_.path() / "out";
    options.machine.threads = 1;
    return options;
  }

  // The message of the refusal; nothing may be left.
  std::string refusal(ExportTo to, const std::function<void(const fs::path&)>& plant,
                      std::optional<GgufKind> kind = std::nullopt) {
    ExportOptions requested = options(to);
    requested.before_check = plant;
    requested.kind = kind;
    try {
      export_run(requested);
      ADD_FAILURE() << "the fault was not noticed";
      return "";
    } catch (const DamagedError& error) {
      std::vector<std::string> names;
      for (const auto& entry : fs::directory_iterator(folder_.path()))
        names.push_back(entry.path().filename());
      std::sort(names.begin(), names.end());
      EXPECT_EQ(names, (std::vector<std::string>{"adapter", "base", "rows.jsonl"}));
      return error.what();
    }
  }

  [[nodiscard]] fs::path base() const { return folder_.path() / "base"; }
  [[nodiscard]] fs::path adapter() const { return folder_.path() / "adapter"; }

  TestFolder folder_;
  ModelSpec spec_;
  Numbers numbers_;
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(Exported, appears_with_what_was_checked) {
  const ExportResult result = export_run(options(ExportTo::ollama));
  EXPECT_EQ(result.check.rows, 4);
  EXPECT_LT(result.check.difference, 1e-4);
  for (const char* name : {"model.gguf", "Modelfile", "check.json"})
    EXPECT_TRUE(fs::exists(folder_.path() / "out" / name)) << name;
}

// The engine reads the codes, the merge writes whole weights: both must be the same model.
TEST_F(Exported, of_a_base_that_is_stored_in_four_bits_has_whole_weights) {
  const double before = export_run(options(ExportTo::merged)).check.run;
  fs::remove_all(folder_.path() / "out");
  store_base_in_four_bits();
  const ExportResult result = export_run(options(ExportTo::merged));
  EXPECT_LT(result.check.difference, 1e-4);
  EXPECT_GT(std::abs(result.check.run - before), 1e-3);  // 4 bits are another model
  EXPECT_FALSE(result.over_quantised.has_value());
  const ModelFolder made = ModelFolder::open(folder_.path() / "out");
  EXPECT_EQ(made.find("model.layers.0.mlp.up_proj.weight").entry->dtype, DType::f32);
  EXPECT_FALSE(made.contains("model.layers.0.mlp.up_proj.weight.absmax"));
  EXPECT_FALSE(read_config(folder_.path() / "out").contains("quantization_config"));
  ExportOptions into_base = options(ExportTo::gguf);
  into_base.target = folder_.path() / "other";
  EXPECT_TRUE(fs::exists(folder_.path() / "out"));
  EXPECT_LT(export_run(into_base).check.difference, 1e-4);
  into_base.into = MergeInto::base;
  into_base.target = folder_.path() / "third";
  EXPECT_THROW(export_run(into_base), UsageError);
}

TEST_F(Exported, ends_answers_as_its_chat_template_does) {
  json tokenizer = json::parse(read_text(base() / "tokenizer.json", 1 << 24));
  json token = tokenizer["added_tokens"][0];
  token["content"] = "<|im_end|>";
  token["id"] = 1536;
  tokenizer["added_tokens"].push_back(token);
  write_text(base() / "tokenizer.json", tokenizer.dump());
  json config = json::parse(read_text(base() / "config.json", 1 << 20));
  config["vocab_size"] = 1540;
  write_text(base() / "config.json", config.dump());
  spec_ = read_model_spec(base() / "config.json");
  fs::remove(base() / "model.safetensors");
  write_base();
  write_text(base() / "chat_template.jinja",
             "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|im_end|>\n{% endfor %}"
             "{% if add_generation_prompt %}<|assistant|>{% endif %}");
  export_run(options(ExportTo::ollama));
  const ModelfileFacts facts = read_modelfile(read_text(folder_.path() / "out/Modelfile", 1 << 20));
  EXPECT_EQ(facts.stops, (std::vector<std::string>{"<|endoftext|>", "<|im_end|>"}));
  const GgufFile file = GgufFile::open(folder_.path() / "out/model.gguf");
  EXPECT_EQ(*file.value("tokenizer.ggml.eot_token_id"), 1536);
  fs::remove_all(folder_.path() / "out");
  export_run(options(ExportTo::merged));
  const json generation = json::parse(read_text(folder_.path() / "out/generation_config.json", 1 << 20));
  EXPECT_EQ(generation["eos_token_id"], (json{1535, 1536}));
  EXPECT_EQ(generation["max_new_tokens"], 16);
}

TEST_F(Exported, with_another_merge_is_noticed) {
  const std::string text = refusal(ExportTo::merged, [&](const fs::path& stage) {
    fs::copy_file(base() / "model.safetensors", stage / "model/model.safetensors",
                  fs::copy_options::overwrite_existing);
  });
  EXPECT_TRUE(contains(text, "more than the 0.0001 that rounding explains")) << text;
}

TEST_F(Exported, with_a_wrong_tensor_is_noticed) {
  const std::string zeros(4096, '\0');
  const std::string text = refusal(ExportTo::merged, [&](const fs::path& stage) {
    const fs::path file = stage / "model/model.safetensors";
    const auto opened = SafetensorsFile::open(file);
    change_bytes(file, opened.find("model.layers.1.mlp.down_proj.weight")->offset, zeros);
  });
  EXPECT_TRUE(contains(text, "a token")) << text;
  // A few values, which the loss over rows does not show beyond the rounding of 4 bits.
  const std::string of_gguf = refusal(
      ExportTo::gguf,
      [&](const fs::path& stage) {
        const fs::path file = stage / "view/model.gguf";
        const auto opened = GgufFile::open(file);
        change_bytes(file, opened.tensors().at("blk.1.attn_k.weight").offset, zeros);
      },
      GgufKind::q4_0);
  EXPECT_TRUE(contains(of_gguf, "self_attn.k_proj.weight differs") || contains(of_gguf, "a token"))
      << of_gguf;
}

TEST_F(Exported, with_a_wrong_end_token_is_noticed) {
  const std::string merged = refusal(ExportTo::merged, [](const fs::path& stage) {
    write_text(stage / "model/generation_config.json", R"({"eos_token_id": 7})");
  });
  EXPECT_TRUE(contains(merged, "end tokens")) << merged;
  const std::string gguf = refusal(ExportTo::gguf, [](const fs::path& stage) {
    const std::string key = "tokenizer.ggml.eos_token_id";
    const fs::path file = stage / "view/model.gguf";
    const std::string whole = read_text(file, int64_t{64} << 20);
    change_bytes(file, static_cast<int64_t>(whole.find(key) + key.size() + 4), std::string("\7\0\0\0", 4));
  });
  EXPECT_TRUE(contains(gguf, "tokenizer.ggml.eos_token_id is 7")) << gguf;
  const std::string ollama = refusal(ExportTo::ollama, [](const fs::path& stage) {
    change_text(stage / "Modelfile", "PARAMETER stop \"<|endoftext|>\"", "PARAMETER stop \"<|im_start|>\"");
  });
  EXPECT_TRUE(contains(ollama, "stops are not the end tokens")) << ollama;
}

TEST_F(Exported, with_wrong_numbers_in_its_head_is_noticed) {
  const std::string text = refusal(ExportTo::gguf, [](const fs::path& stage) {
    const std::string key = "llama.rope.freq_base";
    const fs::path file = stage / "view/model.gguf";
    const std::string whole = read_text(file, int64_t{64} << 20);
    const float other = 20000;
    std::string bytes(4, '\0');
    std::memcpy(bytes.data(), &other, 4);
    change_bytes(file, static_cast<int64_t>(whole.find(key) + key.size() + 4), bytes);
  });
  EXPECT_TRUE(contains(text, "llama.rope.freq_base")) << text;
}

ChatTemplate chat_of(const std::string& name) {
  return ChatTemplate::builtin(name, "demo/model", std::nullopt);
}

TEST(turns, are_found_in_templates_that_put_messages_one_after_the_other) {
  const TurnsFound chatml = find_turns(chat_of("chatml"), "");
  ASSERT_TRUE(chatml.turns.has_value()) << chatml.why;
  EXPECT_EQ(chatml.turns->start, "<|im_start|>user\n");
  EXPECT_EQ(chatml.turns->to_answer, "<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_TRUE(chatml.turns->takes_system);
  for (const char* name : {"llama3", "llama2", "mistral", "alpaca"}) {
    const TurnsFound found = find_turns(chat_of(name), "");
    EXPECT_TRUE(found.turns.has_value()) << name << ": " << found.why;
  }
}

ChatTemplate written(const fs::path& folder, const std::string& source) {
  write_text(folder / "chat_template.jinja", source);
  return *ChatTemplate::of_folder(folder, std::nullopt);
}

TEST(turns, are_not_taken_for_what_a_template_does_otherwise) {
  const TestFolder folder;
  const std::string loop = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
  EXPECT_TRUE(find_turns(written(folder.path(), loop + "<assistant>"), "").turns.has_value());
  // The last message of the user differs from earlier ones; contents are changed; a date is printed.
  EXPECT_FALSE(
      find_turns(written(folder.path(),
                         "{% for m in messages %}{{ '!' if loop.last else '?' }}{{ m.content }}{% endfor %}"),
                 "")
          .turns);
  EXPECT_FALSE(
      find_turns(written(folder.path(),
                         "{% for m in messages %}<{{ m.content | replace('\\n', ' ') }}>{% endfor %}"),
                 "")
          .turns);
  EXPECT_FALSE(find_turns(written(folder.path(), loop + "{{ strftime_now('%Y') }}"), "").turns);
  EXPECT_FALSE(find_turns(written(folder.path(), "{{ '{{' }}" + loop), "").turns);
  // Without a place for the system.
  const TurnsFound none = find_turns(
      written(
          folder.path(),
          "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}[{{ m.content }}]{% endfor %}"),
      "");
  ASSERT_TRUE(none.turns.has_value());
  EXPECT_FALSE(none.turns->takes_system);
}

TEST(modelfile, holds_template_and_stops_that_are_read_back) {
  ModelfileFacts facts;
  facts.go_template = "{{ .Prompt }}\nPARAMETER stop \"no\"\n";
  facts.stops = {"</s>", "<|im_end|>"};
  facts.context = 2048;
  const ModelfileFacts read = read_modelfile(modelfile_text(facts));
  EXPECT_EQ(read.go_template, facts.go_template);
  EXPECT_EQ(read.stops, facts.stops);
  facts.stops = {"a\"b"};
  EXPECT_THROW(modelfile_text(facts), UsageError);
}

}  // namespace
}  // namespace plimsoll
