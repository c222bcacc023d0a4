#include "text/tokenizer.h"

#include <algorithm>
#include <fstream>

#include "base/error.h"
#include "text/added_tokens.h"
#include "text/decoder.h"
#include "text/model.h"
#include "text/normalizer.h"
#include "text/post_processor.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer_file.h"
#include "text/utf8.h"

namespace plimsoll {
namespace {

// ICU counts in 32 bits, and so does the merge heap; normalising may make text three times as long.
constexpr size_t kLongestText = size_t{1} << 29;

const Json& at_or_null(const Json& object, const char* key) {
  static const Json null;
  const auto it = object.find(key);
  return it == object.end() ? null : *it;
}

std::vector<std::string> ignored_parts(const Json& head) {
  std::vector<std::string> notes;
  for (const char* key : {"truncation", "padding"})
    if (!at_or_null(head, key).is_null())
      notes.push_back(std::string("\"") + key +
                      "\" in tokenizer.json is ignored: the recipe decides on lengths");
  return notes;
}

}  // namespace

struct Tokenizer::Parts {
  Parts(const TokenizerFile& file, const std::string& where)
      : normalizer(make_normalizer(at_or_null(file.head, "normalizer"), where)),
        pre_tokenizer(make_pre_tokenizer(at_or_null(file.head, "pre_tokenizer"), where)),
        model(make_model(file, pre_tokenizer.byte_level, where)),
        added(at_or_null(file.head, "added_tokens"), model->vocab(), normalizer.get(), where),
        affixes(make_post_processor(at_or_null(file.head, "post_processor"), where)),
        decoder(make_decoder(at_or_null(file.head, "decoder"), where)),
        notes(ignored_parts(file.head)) {}

  std::unique_ptr<Normalizer> normalizer;
  PreTokenizerChain pre_tokenizer;
  std::unique_ptr<Model> model;
  AddedTokens added;
  Affixes affixes;
  std::unique_ptr<Decoder> decoder;
  std::vector<std::string> notes;
};

Tokenizer::Tokenizer(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}

Tokenizer Tokenizer::from_file(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw UsageError(file.string() + ": cannot be opened; expected a tokenizer.json");
  std::string text;
  std::error_code error;
  const auto size = std::filesystem::file_size(file, error);
  if (error) throw UsageError(file.string() + ": " + error.message() + "; expected a tokenizer.json");
  text.resize(size);
  if (!stream.read(text.data(), static_cast<std::streamsize>(size)))
    throw UsageError(file.string() + ": cannot be read to its end");
  return from_json(text, file.string());
}

Tokenizer Tokenizer::from_json(std::string_view json, std::string_view where) {
  const std::string name(where);
  try {
    return Tokenizer(std::make_shared<const Parts>(read_tokenizer_file(json, name), name));
  } catch (const Json::exception& e) {  // no JSON, a missing key, a value of another type
    throw DamagedError(name + ": not a readable tokenizer.json: " + e.what());
  }
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  std::vector<int32_t> ids;
  encode_into(text, add_special_tokens, ids);
  return ids;
}

void Tokenizer::encode_into(std::string_view text, bool add_special_tokens, std::vector<int32_t>& out) const {
  if (text.size() > kLongestText)
    throw UsageError("a text of " + std::to_string(text.size()) +
                     " bytes is too long for the tokenizer; split it");
  const Affixes& affixes = parts_->affixes;
  if (add_special_tokens) out.insert(out.end(), affixes.prefix.begin(), affixes.prefix.end());
  if (is_valid_utf8(text))
    encode_text(text, out);
  else
    encode_text(replace_invalid_utf8(text), out);
  if (add_special_tokens) out.insert(out.end(), affixes.suffix.begin(), affixes.suffix.end());
}

void Tokenizer::encode_text(std::string_view text, std::vector<int32_t>& out) const {
  const Parts& parts = *parts_;
  std::vector<Segment> raw;
  parts.added.raw().cut(text, raw);
  std::vector<Segment> segments;
  std::vector<std::string_view> spare;
  std::string storage;
  for (const Segment& piece : raw) {
    if (piece.id >= 0) {
      out.push_back(piece.id);
      continue;
    }
    segments.clear();
    parts.added.normalized().cut(
        parts.normalizer ? parts.normalizer->normalize(piece.text, storage) : piece.text, segments);
    for (const Segment& segment : segments) {
      if (segment.id >= 0) {
        out.push_back(segment.id);
        continue;
      }
      Words words{{segment.text}, {}};
      parts.pre_tokenizer.split(words, spare);
      for (const std::string_view word : words.views) parts.model->tokenize(word, out);
    }
  }
}

void Tokenizer::append_token_bytes(int32_t id, bool skip_special_tokens, std::string& out) const {
  if (skip_special_tokens && is_special(id)) return;
  const AddedToken* added = parts_->added.find(id);
  parts_->decoder->append_bytes(added != nullptr ? added->spelling : parts_->model->vocab().piece(id), out);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::string bytes;
  for (const int32_t id : ids) append_token_bytes(id, skip_special_tokens, bytes);
  return is_valid_utf8(bytes) ? bytes : replace_invalid_utf8(bytes);
}

int64_t Tokenizer::vocab_size() const {
  return std::max(parts_->model->vocab().end_id(), parts_->added.end_id());
}

std::optional<int32_t> Tokenizer::token_id(std::string_view token) const {
  if (const AddedToken* added = parts_->added.find(token)) return added->id;
  return parts_->model->vocab().find(token);
}

std::string Tokenizer::token(int32_t id) const {
  if (const AddedToken* added = parts_->added.find(id)) return added->spelling;
  return std::string(parts_->model->vocab().piece(id));
}

bool Tokenizer::is_special(int32_t id) const {
  const AddedToken* added = parts_->added.find(id);
  return added != nullptr && added->special;
}

const std::vector<std::string>& Tokenizer::notes() const { return parts_->notes; }

int64_t Tokenizer::resident_bytes() const {
  // The class table of the scanners, measured.
  constexpr int64_t kUnicodeTable = 72 << 10;
  return static_cast<int64_t>(sizeof(Parts)) + kUnicodeTable + parts_->pre_tokenizer.resident_bytes() +
         parts_->model->resident_bytes() + parts_->added.resident_bytes() +
         (parts_->normalizer ? parts_->normalizer->resident_bytes() : 0);
}

int64_t Tokenizer::estimated_bytes(const std::filesystem::path& file) {
  std::error_code error;
  const auto size = std::filesystem::file_size(file, error);
  if (error) throw UsageError(file.string() + ": " + error.message());
  // Measured: 0.6 to 2.1 bytes of tables per byte of file, the more the fewer pieces (hash tables are powers
  // of two). 2 MiB hold the word cache, the Unicode tables and small files.
  return static_cast<int64_t>(size) * 27 / 10 + (int64_t{2} << 20);
}

}  // namespace plimsoll
