#include "tokenizer/files/vocabulary_files.h"

#include <algorithm>

#include "base/format.h"
#include "base/json_text.h"
#include "base/regular_file.h"
#include "base/units.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLargestVocabulary = 64 * kMiB;
constexpr const char* kBytes = "vocab.json";
constexpr const char* kMerges = "merges.txt";

nlohmann::json object_of(const fs::path& file) {
  std::error_code unknown;
  if (fs::status(file, unknown).type() == fs::file_type::not_found) return nlohmann::json::object();
  nlohmann::json json = read_json_text<nlohmann::json>(read_regular(file, kLargestVocabulary));
  if (!json.is_object()) throw DamagedError(file.string() + ": not a JSON object");
  return json;
}

// "BertTokenizer" of "BertTokenizerFast"; of a folder that names none, by its model.
std::string class_of(const fs::path& folder, const nlohmann::json& config) {
  const nlohmann::json name = config.value("tokenizer_class", nlohmann::json());
  if (name.is_string()) {
    const auto text = name.get<std::string>();
    return text.ends_with("Fast") ? text.substr(0, text.size() - 4) : text;
  }
  const nlohmann::json type = object_of(folder / "config.json").value("model_type", nlohmann::json());
  if (type == "bert") return "BertTokenizer";
  if (type == "roberta") return "RobertaTokenizer";
  if (type == "gpt2") return "GPT2Tokenizer";
  return "";
}

// The lines of a text; one that ends without a line's end counts.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const size_t cut = end > at && text[end - 1] == '\r' ? end - 1 : end;
    lines.push_back(text.substr(at, cut - at));
    at = end + 1;
  }
  return lines;
}

// Makes the parts of a tokenizer.json of one folder.
class VocabularyReader {
 public:
  explicit VocabularyReader(const fs::path& file)
      : file_(file),
        folder_(file.parent_path()),
        config_(object_of(folder_ / "tokenizer_config.json")),
        class_(class_of(folder_, config_)) {
    result_.name = file.string();
    result_.head = {{"added_tokens", nlohmann::json::array()}};
  }

  TokenizerFile read() && {
    if (file_.filename() == kBytes)
      read_bytes();
    else
      read_words();
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse(const std::string& known) const {
    throw UsageError(formatted(
        "{}: its tokenizer is {}; without a tokenizer.json {} is read. Load and save the tokenizer by "
        "transformers once, which writes that file",
        file_.string(), class_.empty() ? "of no class that is named" : "a " + class_, known));
  }

  void read_words() {
    if (class_ != "BertTokenizer" && !class_.empty()) refuse("BertTokenizer's");
    int32_t id = 0;
    for (std::string& line : lines_of(read_regular(file_, kLargestVocabulary)))
      result_.vocab.push_back({std::move(line), id++});
    const bool lower = flag("do_lower_case", true);
    const nlohmann::json accents = config_.value("strip_accents", nlohmann::json());
    nlohmann::json& head = result_.head;
    head["normalizer"] = {{"type", "BertNormalizer"},
                          {"clean_text", true},
                          {"handle_chinese_chars", flag("tokenize_chinese_chars", true)},
                          {"strip_accents", accents},
                          {"lowercase", lower}};
    head["pre_tokenizer"] = {{"type", "BertPreTokenizer"}};
    head["decoder"] = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
    head["model"] = {{"type", "WordPiece"},
                     {"unk_token", special("unk_token", "[UNK]")},
                     {"continuing_subword_prefix", "##"},
                     {"max_input_chars_per_word", 100}};
    special("pad_token", "[PAD]");
    special("mask_token", "[MASK]");
    frame("BertProcessing", special("cls_token", "[CLS]"), special("sep_token", "[SEP]"));
    order_added();
  }

  void read_bytes() {
    const bool roberta = class_ == "RobertaTokenizer";
    if (!roberta && class_ != "GPT2Tokenizer") refuse("GPT2Tokenizer's and RobertaTokenizer's");
    const nlohmann::json vocab = object_of(file_);
    for (const auto& [piece, id] : vocab.items()) {
      if (!id.is_number_integer() || id < 0 || id > INT32_MAX)
        throw DamagedError(formatted("{}: \"{}\" has no id", file_.string(), piece));
      result_.vocab.push_back({piece, id.get<int32_t>()});
    }
    read_merges();
    const bool space = flag("add_prefix_space", false);
    nlohmann::json& head = result_.head;
    head["pre_tokenizer"] = {
        {"type", "ByteLevel"}, {"add_prefix_space", space}, {"trim_offsets", true}, {"use_regex", true}};
    head["decoder"] = head["pre_tokenizer"];
    head["model"] = {{"type", "BPE"}};
    const char* const end = roberta ? "</s>" : "<|endoftext|>";
    special("unk_token", roberta ? "<unk>" : end);
    const std::string bos = special("bos_token", roberta ? "<s>" : end), eos = special("eos_token", end);
    if (roberta) {
      special("pad_token", "<pad>");
      special("mask_token", "<mask>");
      frame("RobertaProcessing", special("cls_token", bos), special("sep_token", eos));
      head["post_processor"]["trim_offsets"] = true;
      head["post_processor"]["add_prefix_space"] = space;
    }
    order_added();
  }

  void read_merges() {
    const fs::path file = folder_ / kMerges;
    const std::vector<std::string> lines = lines_of(read_regular(file, kLargestVocabulary));
    for (size_t i = 0; i < lines.size(); ++i) {
      if (lines[i].empty() || (i == 0 && lines[i].starts_with("#version"))) continue;
      const size_t space = lines[i].find(' ');
      if (space == std::string::npos || lines[i].find(' ', space + 1) != std::string::npos)
        throw DamagedError(formatted("{}:{}: is no merge of two pieces", file.string(), i + 1));
      result_.merges.emplace_back(lines[i].substr(0, space), lines[i].substr(space + 1));
    }
  }

  [[nodiscard]] bool flag(const char* key, bool otherwise) const {
    const nlohmann::json value = config_.value(key, nlohmann::json());
    return value.is_boolean() ? value.get<bool>() : otherwise;
  }

  [[nodiscard]] int32_t id_of(const std::string& piece) const {
    const auto found = std::find_if(result_.vocab.begin(), result_.vocab.end(),
                                    [&](const PieceId& one) { return one.piece == piece; });
    if (found == result_.vocab.end())
      throw DamagedError(formatted("{}: lacks the special token \"{}\"", file_.string(), piece));
    return found->id;
  }

  // The name of a special token, which becomes an added one.
  std::string special(const char* key, const std::string& otherwise) {
    const nlohmann::json value = config_.value(key, nlohmann::json());
    const nlohmann::json content = value.is_object() ? value.value("content", nlohmann::json()) : value;
    const std::string token = content.is_string() ? content.get<std::string>() : otherwise;
    nlohmann::json& added = result_.head["added_tokens"];
    const bool known = std::any_of(added.begin(), added.end(),
                                   [&](const nlohmann::json& one) { return one["content"] == token; });
    if (!known)
      added.push_back({{"id", id_of(token)}, {"content", token}, {"special", true}, {"normalized", false}});
    return token;
  }

  void order_added() {
    nlohmann::json& added = result_.head["added_tokens"];
    std::sort(added.begin(), added.end(),
              [](const nlohmann::json& a, const nlohmann::json& b) { return a["id"] < b["id"]; });
  }

  void frame(const char* type, const std::string& first, const std::string& last) {
    result_.head["post_processor"] = {{"type", type},
                                      {"cls", nlohmann::json::array({first, id_of(first)})},
                                      {"sep", nlohmann::json::array({last, id_of(last)})}};
  }

  fs::path file_, folder_;
  nlohmann::json config_;
  std::string class_;
  TokenizerFile result_;
};

}  // namespace

TokenizerFile read_vocabulary(const fs::path& file) { return VocabularyReader(file).read(); }

bool is_vocabulary(const fs::path& file) {
  return file.filename() == "vocab.txt" ||
         (file.filename() == kBytes && fs::exists(file.parent_path() / kMerges));
}

}  // namespace plimsoll
