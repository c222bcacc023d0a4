#include "tokenizer/models/bpe.h"

#include <algorithm>
#include <bit>

#include "base/growth.h"
#include "tokenizer/models/bpe_merge.h"
#include "tokenizer/models/byte_level.h"
#include "unicode/utf8.h"

namespace plimsoll {
namespace {

// One long word must not hold its memory for the rest of the thread: 64 KiB is kept.
constexpr size_t kMostKeptSymbols = 1 << 14;

void release_if_large(std::vector<int32_t>& symbols) {
  if (symbols.capacity() > kMostKeptSymbols) symbols = std::vector<int32_t>();
}

size_t bridge_of(int32_t left, int32_t right, size_t bits) {
  const uint64_t key = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  return static_cast<size_t>((key * 0x9E3779B97F4A7C15U) >> 32) & (bits - 1);
}

// Collects the symbols of a word as the reference does: a run of unknown characters waits until a known one
// or the end, and pieces of bytes overtake it.
class SymbolWriter {
 public:
  SymbolWriter(const BpeOptions& options, const std::array<int32_t, 256>& byte_ids,
               std::vector<int32_t>& symbols)
      : options_(options), byte_ids_(byte_ids), symbols_(symbols) {}
  ~SymbolWriter() { flush(); }
  SymbolWriter(const SymbolWriter&) = delete;
  SymbolWriter& operator=(const SymbolWriter&) = delete;

  void known(int32_t id) {
    flush();
    reserve_more(symbols_, 1);
    symbols_.push_back(id);
  }
  void unknown(std::string_view text) {
    if (options_.byte_fallback && append_bytes(text)) return;
    if (options_.unk_id < 0) return;
    if (!options_.fuse_unk) flush();
    waiting_ = true;
  }

 private:
  void flush() {
    if (waiting_) symbols_.push_back(options_.unk_id);
    waiting_ = false;
  }
  bool append_bytes(std::string_view text) {
    for (const char c : text)
      if (byte_ids_[static_cast<unsigned char>(c)] < 0) return false;
    reserve_more(symbols_, text.size());
    for (const char c : text) symbols_.push_back(byte_ids_[static_cast<unsigned char>(c)]);
    return true;
  }

  const BpeOptions& options_;
  const std::array<int32_t, 256>& byte_ids_;
  std::vector<int32_t>& symbols_;
  bool waiting_ = false;
};

}  // namespace

Bpe::Bpe(PieceTable vocab, MergeTable merges, BpeOptions options)
    : serial_(next_model_serial()),
      vocab_(std::move(vocab)),
      merges_(std::move(merges)),
      options_(std::move(options)) {
  prepare_symbols();
  prepare_cuts();
}

void Bpe::prepare_symbols() {
  for (int32_t id = 0; id < vocab_.end_id(); ++id) {
    const std::string_view piece = vocab_.piece(id);
    if (piece.empty()) continue;
    const Utf8Char c = decode_utf8(piece.data());
    if (c.bytes == piece.size()) symbols_.set(c.code, id);
  }
  if (options_.raw_bytes) {
    for (size_t byte = 0; byte < byte_ids_.size(); ++byte)
      byte_ids_[byte] = symbol_of(byte_level_char(static_cast<unsigned char>(byte)));
  } else {
    byte_ids_ = byte_piece_ids(vocab_);
  }
}

int32_t Bpe::symbol_of(std::string_view character) const {
  return symbols_[decode_utf8(character.data()).code];
}

// A word may be cut between two symbols that no merge bridges: not the last symbol of a left part with the
// first of a right one. Every symbol is one character here, so that the spelling of a piece shows them.
void Bpe::prepare_cuts() {
  if (!options_.prefix.empty() || !options_.suffix.empty()) return;
  bool cuttable = true;
  std::vector<std::pair<int32_t, int32_t>> pairs;
  merges_.for_each([&](int32_t left, int32_t right) {
    for (const int32_t id : {left, right})
      if (id == options_.unk_id || (options_.byte_fallback && byte_of_piece(vocab_.piece(id)) >= 0))
        cuttable = false;
    const std::string_view left_piece = vocab_.piece(left);
    const std::string_view right_piece = vocab_.piece(right);
    if (left_piece.empty() || right_piece.empty()) return;
    const char32_t last = decode_utf8_before(left_piece.data() + left_piece.size()).code;
    pairs.emplace_back(symbols_[last], symbol_of(right_piece));
  });
  if (!cuttable) return;
  constexpr size_t kLeastBits = 1 << 14;
  const size_t bits = std::bit_ceil(std::max(kLeastBits, 2 * pairs.size()));
  bridges_.assign(bits / 64, 0);
  for (const auto& [left, right] : pairs) {
    const size_t bit = bridge_of(left, right, bits);
    bridges_[bit / 64] |= uint64_t{1} << bit % 64;
  }
}

bool Bpe::may_merge(int32_t left, int32_t right) const {
  if (bridges_.empty()) return true;
  const size_t bit = bridge_of(left, right, bridges_.size() * 64);
  return (bridges_[bit / 64] >> bit % 64 & 1) != 0;
}

void Bpe::tokenize(std::string_view word, std::vector<int32_t>& out) const {
  if (options_.raw_bytes) return tokenize_cached(word, out);
  if (options_.ignore_merges)
    if (const auto id = vocab_.find(word)) return out.push_back(*id);
  if (bridges_.empty()) return tokenize_cached(word, out);
  tokenize_runs(word, out);
}

// Cuts a word of characters into runs. An unknown character stays with its neighbours: it may be dropped, or
// join a run of unknown ones.
void Bpe::tokenize_runs(std::string_view word, std::vector<int32_t>& out) const {
  size_t begin = 0;
  int32_t previous = -1;
  for (size_t i = 0; i < word.size();) {
    const Utf8Char c = decode_utf8(word.data() + i);
    const int32_t symbol = symbols_[c.code];
    if (previous >= 0 && symbol >= 0 && !may_merge(previous, symbol)) {
      tokenize_cached(word.substr(begin, i - begin), out);
      begin = i;
    }
    previous = symbol;
    i += c.bytes;
  }
  tokenize_cached(word.substr(begin), out);
}

// The cache's entries of the next words are prefetched while the words before them are looked at.
void Bpe::tokenize_all(std::span<const std::string_view> words, std::vector<int32_t>& out) const {
  if (!options_.raw_bytes) return Model::tokenize_all(words, out);
  constexpr size_t kTogether = 16;
  WordCache& cache = WordCache::of_thread(serial_);
  std::array<size_t, kTogether> slots{};
  for (; !words.empty(); words = words.subspan(std::min(kTogether, words.size()))) {
    const auto now = words.first(std::min(kTogether, words.size()));
    for (size_t i = 0; i < now.size(); ++i) slots[i] = cache.prefetch(now[i]);
    for (size_t i = 0; i < now.size(); ++i) tokenize_in(cache, slots[i], now[i], out);
  }
}

void Bpe::tokenize_cached(std::string_view run, std::vector<int32_t>& out) const {
  WordCache& cache = WordCache::of_thread(serial_);
  tokenize_in(cache, WordCache::slot_of(run), run, out);
}

void Bpe::tokenize_in(WordCache& cache, size_t slot, std::string_view run, std::vector<int32_t>& out) const {
  if (const auto ids = cache.find(run, slot); !ids.empty()) {
    reserve_more(out, ids.size());
    out.insert(out.end(), ids.begin(), ids.end());
    return;
  }
  thread_local std::vector<int32_t> symbols;
  thread_local std::vector<int32_t> stretch;
  symbols.clear();
  append_symbols(run, symbols);
  const size_t before = out.size();
  for (size_t begin = 0; begin < symbols.size();) {
    size_t end = begin + 1;
    while (end < symbols.size() && may_merge(symbols[end - 1], symbols[end])) ++end;
    stretch.assign(symbols.begin() + static_cast<int64_t>(begin),
                   symbols.begin() + static_cast<int64_t>(end));
    merge_symbols(merges_, stretch);
    reserve_more(out, stretch.size());
    out.insert(out.end(), stretch.begin(), stretch.end());
    begin = end;
  }
  cache.put(run, slot, std::span(out).subspan(before));
  release_if_large(symbols);
  release_if_large(stretch);
}

void Bpe::append_symbols(std::string_view run, std::vector<int32_t>& symbols) const {
  if (options_.raw_bytes && options_.ignore_merges) {
    std::string piece;
    append_byte_level(run, piece);
    if (const auto id = vocab_.find(piece)) return symbols.push_back(*id);
  }
  if (!options_.prefix.empty() || !options_.suffix.empty()) return append_affixed_symbols(run, symbols);
  SymbolWriter writer(options_, byte_ids_, symbols);
  for (size_t i = 0; i < run.size();) {
    const Utf8Char c = options_.raw_bytes ? Utf8Char{0, 1} : decode_utf8(run.data() + i);
    const int32_t id = options_.raw_bytes ? byte_ids_[static_cast<unsigned char>(run[i])] : symbols_[c.code];
    if (id >= 0)
      writer.known(id);
    else
      writer.unknown(run.substr(i, c.bytes));
    i += c.bytes;
  }
}

void Bpe::append_affixed_symbols(std::string_view word, std::vector<int32_t>& symbols) const {
  SymbolWriter writer(options_, byte_ids_, symbols);
  std::string symbol;
  for (size_t i = 0; i < word.size();) {
    const uint32_t bytes = decode_utf8(word.data() + i).bytes;
    symbol.clear();
    if (i > 0) symbol += options_.prefix;
    symbol += word.substr(i, bytes);
    i += bytes;
    if (i == word.size()) symbol += options_.suffix;
    if (const auto id = vocab_.find(symbol))
      writer.known(*id);
    else
      writer.unknown(symbol);
  }
}

int64_t Bpe::resident_bytes() const {
  return vocab_.resident_bytes() + merges_.resident_bytes() + symbols_.resident_bytes() +
         static_cast<int64_t>(sizeof *this + bridges_.capacity() * sizeof(uint64_t));
}

}  // namespace plimsoll
