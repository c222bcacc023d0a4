#include "tokenizer/tokenizer.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "base/growth.h"
#include "base/regular_file.h"
#include "base/units.h"
#include "tokenizer/files/vocabulary_files.h"
#include "tokenizer/models/word_cache.h"
#include "tokenizer/tokenizer_parts.h"
#include "unicode/text_error.h"
#include "unicode/utf8.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

// ICU counts in 32 bits, and so do the models.
constexpr size_t kLongestText = size_t{1} << 26;
constexpr int64_t kLargestFile = 512 * kMiB;  // the largest known tokenizer.json has 33 MB
// The most bytes of all the pieces of a text together: a mark for spaces makes three bytes of one, as do
// parts of Korean syllables, and short pieces may get a prefix each. A long text gets no more, as its memory
// is planned by its length (data/batch/loader.h): compatibility forms make eleven bytes of one (U+FDFA),
// which no text consists of.
size_t most_normal_bytes(size_t bytes) { return std::min((size_t{64} << 10) + 4 * bytes, size_t{1} << 30); }

// A word has no more ids than bytes, and long ones mostly far fewer.
void reserve_for(std::span<const std::string_view> words, std::vector<int32_t>& ids) {
  constexpr size_t kOrdinary = 64;
  size_t most = 0;
  for (const std::string_view word : words) most += std::min(word.size(), kOrdinary);
  reserve_more(ids, most);
}

}  // namespace

Tokenizer::Tokenizer(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}

Tokenizer Tokenizer::from_file(const fs::path& file) {
  if (is_vocabulary(file)) return Tokenizer(std::make_shared<const Parts>(make_parts(read_vocabulary(file))));
  const std::string text = read_regular(file, kLargestFile);
  return file.extension() == ".model" ? from_sentence_piece(text, file.string())
                                      : from_json(text, file.string());
}

Tokenizer Tokenizer::from_json(std::string_view json, std::string_view where) {
  return Tokenizer(std::make_shared<const Parts>(make_parts(read_tokenizer_file(json, std::string(where)))));
}

Tokenizer Tokenizer::from_sentence_piece(std::string_view model, std::string_view where) {
  return Tokenizer(std::make_shared<const Parts>(make_sentence_piece_parts(model, std::string(where))));
}

std::optional<fs::path> Tokenizer::find_file(const fs::path& folder) {
  for (const char* name : {"tokenizer.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model"})
    if (fs::exists(folder / name)) return folder / name;
  for (const char* name : {"vocab.txt", "vocab.json"})
    if (fs::exists(folder / name) && is_vocabulary(folder / name)) return folder / name;
  return std::nullopt;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  std::vector<int32_t> ids;
  encode_into(text, add_special_tokens, ids);
  return ids;
}

void Tokenizer::encode_into(std::string_view text, bool add_special_tokens, std::vector<int32_t>& out) const {
  if (text.size() > kLongestText)
    throw TextError(formatted("a text of {} bytes is too long for the tokenizer; split it", text.size()));
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
  NormalText normal;
  size_t room = most_normal_bytes(text.size());
  const auto take = [&](std::span<const std::string_view> words) {
    reserve_for(words, out);
    parts.model->tokenize_all(words, out);
  };
  for (const Segment& piece : raw) {
    if (piece.id >= 0) {
      out.push_back(piece.id);
      continue;
    }
    normal.reset(piece.text, piece.text.data() == text.data());
    normal.limit(room);
    if (parts.normalizer) parts.normalizer->apply(normal);
    room -= std::min(room, normal.text().size());
    segments.clear();
    parts.added.normalized().cut(normal.text(), segments);
    for (const Segment& segment : segments) {
      if (segment.id >= 0) {
        out.push_back(segment.id);
        continue;
      }
      parts.pre_tokenizer.split(segment.text, normal.from_start() ? normal.text().data() : nullptr, take);
    }
  }
}

const Affixes& Tokenizer::affixes() const { return parts_->affixes; }

std::unique_ptr<TokenSink> Tokenizer::start_decoding(std::string& out, bool eager) const {
  return parts_->decoder.start(out, eager);
}

void Tokenizer::decode_token(int32_t id, bool skip_special_tokens, TokenSink& run) const {
  if (skip_special_tokens && is_special(id)) return;
  const AddedToken* added = parts_->added.find(id);
  const std::string_view token = added != nullptr ? added->spelling : parts_->model->vocab().piece(id);
  if (token.data() != nullptr) run.token(token);
}

void Tokenizer::append_token_bytes(int32_t id, bool skip_special_tokens, std::string& out) const {
  if (skip_special_tokens && is_special(id)) return;
  const AddedToken* added = parts_->added.find(id);
  if (added != nullptr) {
    out += added->spelling;
  } else {
    parts_->decoder.append_bytes(parts_->model->vocab().piece(id), out);
  }
}

size_t Tokenizer::token_bytes_in(int32_t id, std::string_view text) const {
  if (const AddedToken* added = parts_->added.find(id))
    return text.starts_with(added->spelling) ? added->spelling.size() : 0;
  return parts_->decoder.bytes_in(parts_->model->vocab().piece(id), text);
}

std::vector<size_t> Tokenizer::starts_by_lengths(std::string_view text, std::span<const int32_t> ids) const {
  const std::vector<uint16_t>& lengths = parts_->lengths;
  if (lengths.empty() || (!is_ascii(text) && (parts_->normalizer || !is_valid_utf8(text)))) return {};
  std::vector<size_t> starts;
  starts.reserve(ids.size() + 1);
  size_t at = 0;
  for (const int32_t id : ids) {
    starts.push_back(at);
    if (static_cast<size_t>(id) >= lengths.size()) return {};
    at += lengths[static_cast<size_t>(id)];
  }
  starts.push_back(at);
  if (at != text.size()) starts = {};
  return starts;  // no copy: of a long text they are most of its memory
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::string text;
  const auto run = start_decoding(text, false);
  for (const int32_t id : ids) decode_token(id, skip_special_tokens, *run);
  run->finish();
  return text;
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
  // The class tables, measured.
  constexpr int64_t kUnicodeTables = 200 << 10;
  return static_cast<int64_t>(sizeof(Parts) + parts_->lengths.capacity() * sizeof(uint16_t)) +
         kUnicodeTables + WordCache::kBytes + parts_->pre_tokenizer.resident_bytes() +
         parts_->decoder.resident_bytes() + parts_->model->resident_bytes() + parts_->added.resident_bytes() +
         (parts_->normalizer ? parts_->normalizer->resident_bytes() : 0);
}

int64_t Tokenizer::estimated_bytes(const std::filesystem::path& file) {
  std::error_code error;
  const auto size = std::filesystem::file_size(file, error);
  if (error) throw UsageError(formatted("{}: {}", file.string(), error.message()));
  // Measured for JSON: 0.6 to 2.1 bytes of tables per byte of file, the more the fewer pieces (hash tables
  // are powers of two). A SentencePiece model, or a list of words, is a tenth as large: 5 to 14. 2 MiB hold
  // the word cache, the Unicode tables and small files.
  const bool bare = file.extension() == ".model" || file.extension() == ".txt";
  const int64_t tenths = bare ? 180 : 27;
  return static_cast<int64_t>(size) * tenths / 10 + (int64_t{2} << 20);
}

}  // namespace plimsoll
