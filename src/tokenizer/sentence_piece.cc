// Builds a tokenizer from a SentencePiece model: the ids are SentencePiece's, except that control pieces
// ("</s>") written in a text are cut out as special tokens, as model folders use them.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/format.h"
#include "tokenizer/files/sentence_piece_model.h"
#include "tokenizer/models/bpe.h"
#include "tokenizer/models/unigram.h"
#include "tokenizer/steps/charsmap.h"
#include "tokenizer/tokenizer_parts.h"
#include "unicode/utf8.h"

namespace plimsoll {
namespace {

using Type = SentencePieceModel::Type;
constexpr std::string_view kMark = "\u2581";  // stands for a space

[[noreturn]] void refuse(const std::string& where, const std::string& what, const std::string& supported) {
  throw UsageError(formatted("{}: {} is not supported; supported: {}", where, what, supported));
}

// SentencePiece's normaliser: the longest entry of its character map at every place, user-defined pieces kept
// as they are, spaces joined and marked.
class SentencePieceNormalizer final : public Normalizer {
 public:
  SentencePieceNormalizer(const SentencePieceModel& model, const std::string& where)
      : space_(model.escape_spaces ? kMark : " "),
        add_prefix_(model.add_dummy_prefix),
        squeeze_(model.remove_extra_spaces) {
    if (!model.charsmap.empty()) map_.emplace(model.charsmap, where);
    std::vector<PieceTrie::Entry> kept;
    for (const auto& piece : model.pieces)
      if (piece.type == Type::user_defined) kept.push_back({piece.text, 0});
    if (!kept.empty()) kept_.emplace(std::move(kept));
  }

  void apply(NormalText& normal) const override {
    const std::string_view text = normal.text();
    if (text.empty()) return;
    std::string& out = normal.begin();
    size_t i = 0;
    if (squeeze_)
      for (Step step; i < text.size() && (step = next(text.substr(i))).text == " "; i += step.bytes) {
      }
    if (i < text.size() && add_prefix_ && normal.from_start()) out += space_;
    bool after_space = squeeze_;
    while (i < text.size()) {
      const Step step = next(text.substr(i));
      i += step.bytes;
      std::string_view part = step.text;
      while (after_space && part.starts_with(' ')) part.remove_prefix(1);
      if (part.empty()) continue;
      if (out.size() > normal.most()) refuse_growth(text.size());
      reserve_more(out, part.size() + space_.size());
      append(part, out);
      after_space = squeeze_ && part.ends_with(' ');
    }
    if (squeeze_)
      while (out.ends_with(space_)) out.resize(out.size() - space_.size());
    normal.commit();
  }
  [[nodiscard]] int64_t resident_bytes() const override {
    return (map_ ? map_->resident_bytes() : 0) + (kept_ ? kept_->resident_bytes() : 0);
  }

 private:
  struct Step {
    size_t bytes = 0;
    std::string_view text;
  };
  [[nodiscard]] Step next(std::string_view text) const {
    size_t length = 0;
    if (kept_) kept_->for_each_prefix(text, [&](size_t bytes, int32_t) { length = bytes; });
    if (length > 0) return {length, text.substr(0, length)};
    if (map_)
      if (const auto match = map_->longest(text)) return {match->bytes, match->replacement};
    length = decode_utf8(text.data()).bytes;
    return {length, text.substr(0, length)};
  }
  void append(std::string_view part, std::string& out) const {
    for (const char c : part) {
      if (c == ' ')
        out += space_;
      else
        out += c;
    }
  }

  std::string_view space_;
  bool add_prefix_;
  bool squeeze_;
  std::optional<Charsmap> map_;
  std::optional<PieceTrie> kept_;  // user-defined pieces
};

std::vector<PieceId> vocab_of(const SentencePieceModel& model) {
  std::vector<PieceId> vocab;
  for (const auto& piece : model.pieces) vocab.push_back({piece.text, static_cast<int32_t>(vocab.size())});
  return vocab;
}

int32_t unknown_id(const SentencePieceModel& model, const std::string& where) {
  const auto it = std::find_if(model.pieces.begin(), model.pieces.end(),
                               [](const auto& piece) { return piece.type == Type::unknown; });
  if (it == model.pieces.end()) throw DamagedError(where + ": has no unknown piece");
  return static_cast<int32_t>(it - model.pieces.begin());
}

std::unique_ptr<Model> make_unigram(const SentencePieceModel& model, const std::string& where) {
  std::vector<double> scores;
  std::vector<int32_t> matched;
  double least = std::numeric_limits<float>::max();
  for (const auto& piece : model.pieces) {
    if (piece.type == Type::normal) {
      matched.push_back(static_cast<int32_t>(scores.size()));
      least = std::min<double>(least, piece.score);
    }
    scores.push_back(piece.score);
  }
  const UnigramOptions options{.unk_id = unknown_id(model, where),
                               .unk_score = static_cast<float>(least) - 10.0F,
                               .byte_fallback = model.byte_fallback,
                               .in_float = true};
  return std::make_unique<Unigram>(PieceTable(vocab_of(model), where), std::move(scores), matched, options);
}

// Every way to write a piece as two others is a merge; the better the piece, the earlier.
MergeTable merges_of(const SentencePieceModel& model, const PieceTable& vocab, const std::string& where) {
  const auto is_text = [&](int32_t id) { return model.pieces[static_cast<size_t>(id)].type == Type::normal; };
  std::vector<int32_t> order;
  for (int32_t id = 0; id < vocab.end_id(); ++id) {
    if (model.pieces[static_cast<size_t>(id)].type == Type::unused)
      refuse(where, formatted("an unused piece (\"{}\")", model.pieces[static_cast<size_t>(id)].text),
             "BPE models without unused pieces");
    if (is_text(id)) order.push_back(id);
  }
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return model.pieces[static_cast<size_t>(a)].score > model.pieces[static_cast<size_t>(b)].score;
  });
  struct Entry {
    int32_t left;
    int32_t right;
    Merge merge;
  };
  std::vector<Entry> entries;
  int32_t rank = -1;
  float score = std::numeric_limits<float>::infinity();
  for (const int32_t id : order) {
    const auto& whole = model.pieces[static_cast<size_t>(id)];
    // Equal scores are one rank: the leftmost pair wins.
    if (whole.score != score) ++rank;
    score = whole.score;
    const std::string_view text = whole.text;
    for (size_t cut = decode_utf8(text.data()).bytes; cut < text.size();
         cut += decode_utf8(text.data() + cut).bytes) {
      const auto left = vocab.find(text.substr(0, cut));
      const auto right = vocab.find(text.substr(cut));
      if (left && right && is_text(*left) && is_text(*right)) entries.push_back({*left, *right, {rank, id}});
    }
  }
  MergeTable table(entries.size());
  for (const Entry& entry : entries) table.insert(entry.left, entry.right, entry.merge);
  return table;
}

std::unique_ptr<Model> make_bpe(const SentencePieceModel& model, const std::string& where) {
  PieceTable vocab(vocab_of(model), where);
  MergeTable merges = merges_of(model, vocab, where);
  return std::make_unique<Bpe>(
      std::move(vocab), std::move(merges),
      BpeOptions{.fuse_unk = true, .byte_fallback = model.byte_fallback, .unk_id = unknown_id(model, where)});
}

// User-defined pieces are found in the normalised text, control pieces in the raw one.
AddedTokens added_tokens(const SentencePieceModel& model) {
  std::vector<AddedToken> tokens;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const auto& [text, score, type] = model.pieces[id];
    if (type != Type::control && type != Type::unknown && type != Type::user_defined) continue;
    const bool user_defined = type == Type::user_defined;
    std::string spelling;
    for (const char c : text) {
      if (user_defined && model.escape_spaces && c == ' ')
        spelling += kMark;
      else
        spelling += c;
    }
    tokens.push_back({.content = text,
                      .id = static_cast<int32_t>(id),
                      .special = !user_defined,
                      .normalized = user_defined,
                      .lstrip = false,
                      .rstrip = false,
                      .single_word = false,
                      .spelling = spelling});
  }
  return AddedTokens(std::move(tokens));
}

}  // namespace

Tokenizer::Parts make_sentence_piece_parts(std::string_view bytes, const std::string& where) {
  const SentencePieceModel model = read_sentence_piece_model(bytes, where);
  if (model.kind != SentencePieceModel::Kind::unigram && model.kind != SentencePieceModel::Kind::bpe)
    refuse(where, "a model of words or characters", "Unigram, BPE");
  if (model.space_as_suffix) refuse(where, "treat_whitespace_as_suffix", "spaces before words");
  if (model.has_denormalizer) refuse(where, "a denormalizer", "models without one");
  const bool unigram = model.kind == SentencePieceModel::Kind::unigram;
  return {.normalizer = std::make_unique<SentencePieceNormalizer>(model, where),
          .pre_tokenizer = {},
          .model = unigram ? make_unigram(model, where) : make_bpe(model, where),
          .added = added_tokens(model),
          .affixes = {},
          .decoder = Decoder::sentence_piece(model.add_dummy_prefix),
          .notes = {"a SentencePiece model names no tokens to put around a text: none are added"}};
}

}  // namespace plimsoll
