#include "tokenizer/models/word_piece.h"

#include <algorithm>

#include "base/format.h"
#include "tokenizer/models/word_cache.h"
#include "unicode/text_error.h"

namespace plimsoll {
namespace {

// Pieces that start with `prefix` and are longer, without it.
PieceTrie make_trie(const PieceTable& vocab, std::string_view prefix) {
  std::vector<PieceTrie::Entry> entries;
  for (int32_t id = 0; id < vocab.end_id(); ++id) {
    const std::string_view piece = vocab.piece(id);
    if (piece.size() > prefix.size() && piece.starts_with(prefix))
      entries.push_back({piece.substr(prefix.size()), id});
  }
  return PieceTrie(std::move(entries));
}

size_t characters(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

WordPiece::WordPiece(PieceTable vocab, int32_t unk_id, const std::string& prefix, size_t longest)
    : serial_(next_model_serial()),
      vocab_(std::move(vocab)),
      first_(make_trie(vocab_, "")),
      rest_(make_trie(vocab_, prefix)),
      unk_id_(unk_id),
      longest_(longest) {}

void WordPiece::tokenize(std::string_view word, std::vector<int32_t>& out) const {
  WordCache& cache = WordCache::of_thread(serial_);
  if (const auto ids = cache.find(word); !ids.empty()) {
    out.insert(out.end(), ids.begin(), ids.end());
    return;
  }
  const size_t before = out.size();
  tokenize_uncached(word, out);
  cache.put(word, std::span(out).subspan(before));
}

void WordPiece::tokenize_uncached(std::string_view word, std::vector<int32_t>& out) const {
  if (characters(word) > longest_) return out.push_back(unk_id_);
  const size_t before = out.size();
  for (size_t begin = 0; begin < word.size();) {
    size_t length = 0;
    int32_t best = -1;
    (begin == 0 ? first_ : rest_).for_each_prefix(word.substr(begin), [&](size_t size, int32_t id) {
      length = size;
      best = id;
    });
    if (best < 0) {
      out.resize(before);
      return out.push_back(unk_id_);
    }
    out.push_back(best);
    begin += length;
  }
}

int64_t WordPiece::resident_bytes() const {
  return vocab_.resident_bytes() + first_.resident_bytes() + rest_.resident_bytes() +
         static_cast<int64_t>(sizeof *this);
}

void WordLevel::tokenize(std::string_view word, std::vector<int32_t>& out) const {
  const auto id = vocab_.find(word);
  if (!id && unk_id_ < 0)
    throw TextError(formatted("the tokenizer has neither the word \"{}\" nor an unknown token (unk_token)",
                              word.substr(0, 200)));
  out.push_back(id.value_or(unk_id_));
}

std::unique_ptr<Model> make_word_piece(const TokenizerFile& file) {
  const JsonPart model = file.model();
  if (file.vocab_is_list) model.at("vocab").damaged("expected an object of pieces and ids");
  PieceTable vocab(file.vocab, file.name);
  constexpr size_t kLongestWord = 100;
  const auto longest = model.find("max_input_chars_per_word");
  const auto unk_id = vocab.find(model.text_or("unk_token", "[UNK]"));
  if (!unk_id) model.damaged("the \"unk_token\", which WordPiece needs, is not in the vocabulary");
  return std::make_unique<WordPiece>(std::move(vocab), *unk_id,
                                     model.text_or("continuing_subword_prefix", "##"),
                                     longest ? longest->count() : kLongestWord);
}

std::unique_ptr<Model> make_word_level(const TokenizerFile& file) {
  const JsonPart model = file.model();
  if (file.vocab_is_list) model.at("vocab").damaged("expected an object of pieces and ids");
  PieceTable vocab(file.vocab, file.name);
  const int32_t unk_id = named_piece(model, "unk_token", vocab);
  return std::make_unique<WordLevel>(std::move(vocab), unk_id);
}

}  // namespace plimsoll
