// A tokenizer as GGUF has it: tables, and the name of what cuts text into words, which the reader must know.
#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "base/format.h"
#include "base/units.h"
#include "chat/chat_template.h"
#include "data/encode/conversations.h"
#include "files/file.h"
#include "tokenizer/files/sentence_piece_model.h"
#include "tokenizer/files/tokenizer_file.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/tokenizer.h"
#include "tools/convert_gguf.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;
using Type = SentencePieceModel::Type;  // the numbers are GGUF's, too

constexpr int64_t kLargestFile = 512 * kMiB;

struct Tables {
  std::string model;  // "gpt2": bytes as characters; "llama": SentencePiece
  std::string pre;    // of gpt2
  std::vector<std::string> tokens;
  std::vector<Type> types;
  std::vector<float> scores;        // of llama
  std::vector<std::string> merges;  // of gpt2
  bool space_prefix = true;         // of llama

  void place(int32_t id, const std::string& token, Type type) {
    const auto at = static_cast<size_t>(id);
    if (at >= tokens.size()) {
      tokens.resize(at + 1);
      types.resize(at + 1, Type::unused);
    }
    tokens[at] = token;
    types[at] = type;
  }
};

// Expressions that cut words, and what llama.cpp calls them.
struct Cut {
  const char* name;
  const char* expression;
};
constexpr std::array kCuts = {
    Cut{"qwen2",
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    Cut{"qwen35",
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    Cut{"llama-bpe",
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    Cut{"tekken",
        R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
};

[[noreturn]] void refuse(const std::string& where, const std::string& why) {
  throw UsageError(formatted("{}: {}, which GGUF has no name for that is known here", where, why));
}

// The parts of the pre-tokenizer, of a sequence or alone.
std::vector<JsonPart> cutters(const TokenizerFile& file) {
  const auto pre = file.root().find("pre_tokenizer");
  if (!pre) return {};
  if (pre->text_or("type", "") == "Sequence") return pre->at("pretokenizers").items();
  return {*pre};
}

std::string name_of_cut(const TokenizerFile& file) {
  std::string name;
  for (const JsonPart& part : cutters(file)) {
    const std::string type = part.text_or("type", "");
    if (type == "ByteLevel") {
      if (name.empty() && part.flag_or("use_regex", true)) name = "gpt-2";
      continue;
    }
    const auto pattern = type == "Split" ? part.find("pattern") : std::nullopt;
    const std::string expression = pattern ? pattern->text_or("Regex", "") : "";
    for (const Cut& cut : kCuts)
      if (name.empty() && expression == cut.expression) name = cut.name;
    if (name.empty()) refuse(part.place(), "cuts words in a way of its own");
  }
  return name;
}

bool cuts_bytes(const TokenizerFile& file) {
  for (const JsonPart& part : cutters(file))
    if (part.text_or("type", "") == "ByteLevel") return true;
  return false;
}

// A text begins as a word does, for a SentencePiece tokenizer in tokenizer.json.
bool begins_with_space(const TokenizerFile& file) {
  for (const JsonPart& part : cutters(file))
    if (part.text_or("type", "") == "Metaspace") return part.text_or("prepend_scheme", "always") != "never";
  const auto normalizer = file.root().find("normalizer");
  if (!normalizer) return false;
  if (normalizer->text_or("type", "") == "Prepend") return true;
  if (normalizer->text_or("type", "") != "Sequence") return false;
  for (const JsonPart& part : normalizer->at("normalizers").items())
    if (part.text_or("type", "") == "Prepend") return true;
  return false;
}

bool is_byte(const std::string& piece) {
  return piece.size() == 6 && piece.starts_with("<0x") && piece.ends_with('>');
}

void place_added_tokens(const TokenizerFile& file, Tables& tables) {
  const auto added = file.root().find("added_tokens");
  if (!added) return;
  for (const JsonPart& token : added->items())
    tables.place(token.at("id").id(), token.at("content").text(),
                 token.flag_or("special", false) ? Type::control : Type::user_defined);
}

// Pieces are joined in the order of their merges: the earlier, the higher the score.
void score_by_merges(const TokenizerFile& file, Tables& tables) {
  std::map<std::string, float> scores;
  float rank = 0;
  for (const auto& [left, right] : file.merges) scores.emplace(left + right, rank -= 1);
  tables.scores.resize(tables.tokens.size(), 0.0F);
  for (size_t i = 0; i < tables.tokens.size(); ++i)
    if (const auto found = scores.find(tables.tokens[i]); found != scores.end())
      tables.scores[i] = found->second;
}

Tables tables_of_json(const fs::path& path) {
  const TokenizerFile file = read_tokenizer_file(read_text(path, kLargestFile), path.string());
  if (file.model_type() != "BPE") refuse(path.string(), "is of the type " + file.model_type());
  Tables tables;
  const bool bytes = cuts_bytes(file);
  if (!bytes && !file.model().flag_or("byte_fallback", false))
    refuse(path.string(), "knows neither bytes as characters nor bytes as pieces");
  for (const PieceId& piece : file.vocab)
    tables.place(piece.id, piece.piece, !bytes && is_byte(piece.piece) ? Type::byte : Type::normal);
  tables.model = bytes ? "gpt2" : "llama";
  if (bytes) {
    tables.pre = name_of_cut(file);
    for (const auto& [left, right] : file.merges) tables.merges.push_back(formatted("{} {}", left, right));
  } else {
    score_by_merges(file, tables);
    tables.space_prefix = begins_with_space(file);
    if (const auto unknown = file.model().find("unk_token"))
      for (size_t i = 0; i < tables.tokens.size(); ++i)
        if (tables.tokens[i] == unknown->text()) tables.types[i] = Type::unknown;
  }
  place_added_tokens(file, tables);
  return tables;
}

Tables tables_of_sentence_piece(const fs::path& path) {
  const SentencePieceModel file = read_sentence_piece_model(read_text(path, kLargestFile), path.string());
  if (file.kind != SentencePieceModel::Kind::bpe || !file.byte_fallback)
    refuse(path.string(), "is no SentencePiece model of the type BPE with bytes");
  Tables tables;
  tables.model = "llama";
  tables.space_prefix = file.add_dummy_prefix;
  for (size_t i = 0; i < file.pieces.size(); ++i) {
    tables.place(static_cast<int32_t>(i), file.pieces[i].text, file.pieces[i].type);
    tables.scores.push_back(file.pieces[i].score);
  }
  return tables;
}

void add_special(const fs::path& folder, const Tokenizer& tokenizer, const std::optional<ChatTemplate>& chat,
                 GgufHead& head) {
  const SpecialTokens special = read_special_tokens(folder, tokenizer);
  const auto add = [&](const char* key, const std::optional<int32_t>& id) {
    if (id) head.add(key, static_cast<uint32_t>(*id));
  };
  add("tokenizer.ggml.bos_token_id", special.bos);
  add("tokenizer.ggml.eos_token_id", special.end_of_text);
  add("tokenizer.ggml.padding_token_id", special.pad);
  add("tokenizer.ggml.eot_token_id", turn_end_beside(special, tokenizer, chat));
  const std::vector<int32_t> ids = tokenizer.encode("a", true);
  head.add("tokenizer.ggml.add_bos_token", special.bos && !ids.empty() && ids.front() == *special.bos);
}

}  // namespace

std::optional<int32_t> turn_end_beside(const SpecialTokens& special, const Tokenizer& tokenizer,
                                       const std::optional<ChatTemplate>& chat) {
  const auto end = chat ? end_of_turn(tokenizer, *chat) : std::nullopt;
  const bool known = end && std::find(special.eos.begin(), special.eos.end(), *end) != special.eos.end();
  return known ? std::nullopt : end;
}

void add_gguf_tokenizer(const fs::path& folder, int64_t rows, GgufHead& head) {
  const auto path = Tokenizer::find_file(folder);
  if (!path)
    throw UsageError(folder.string() + ": has no tokenizer.json or tokenizer.model, which GGUF files hold");
  Tables tables = path->extension() == ".json" ? tables_of_json(*path) : tables_of_sentence_piece(*path);
  if (static_cast<int64_t>(tables.tokens.size()) > rows)
    throw UsageError(formatted("{}: has {} tokens, the model's embedding {} rows", path->string(),
                               format_count(static_cast<int64_t>(tables.tokens.size())), format_count(rows)));
  // An embedding may have more rows than there are tokens, and ids may have gaps.
  tables.tokens.resize(static_cast<size_t>(rows));
  tables.types.resize(static_cast<size_t>(rows), Type::unused);
  std::vector<int32_t> types;
  for (size_t i = 0; i < tables.tokens.size(); ++i) {
    if (tables.tokens[i].empty()) tables.tokens[i] = formatted("[PAD{}]", i);
    types.push_back(static_cast<int32_t>(tables.types[i]));
  }
  head.add("tokenizer.ggml.model", tables.model);
  head.add("tokenizer.ggml.tokens", std::span<const std::string>(tables.tokens));
  head.add("tokenizer.ggml.token_type", std::span<const int32_t>(types));
  if (tables.model == "gpt2") {
    head.add("tokenizer.ggml.pre", tables.pre);
    head.add("tokenizer.ggml.merges", std::span<const std::string>(tables.merges));
  } else {
    tables.scores.resize(static_cast<size_t>(rows), 0.0F);
    head.add("tokenizer.ggml.scores", std::span<const float>(tables.scores));
    head.add("tokenizer.ggml.add_space_prefix", tables.space_prefix);
  }
  const auto chat = ChatTemplate::of_folder(folder, std::nullopt);
  add_special(folder, Tokenizer::from_file(*path), chat, head);
  if (chat) head.add("tokenizer.chat_template", chat->published().source());
}

}  // namespace plimsoll
