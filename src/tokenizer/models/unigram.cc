#include "tokenizer/models/unigram.h"

#include <algorithm>

#include "base/format.h"
#include "base/growth.h"
#include "tokenizer/models/word_cache.h"
#include "unicode/text_error.h"
#include "unicode/utf8.h"

namespace plimsoll {
namespace {

// One long text must not hold its memory for the rest of the thread.
constexpr size_t kMostKeptNodes = 1 << 14;

PieceTrie make_trie(const PieceTable& vocab, std::span<const int32_t> matched) {
  std::vector<PieceTrie::Entry> entries;
  entries.reserve(matched.size());
  for (const int32_t id : matched)
    if (const std::string_view piece = vocab.piece(id); !piece.empty()) entries.push_back({piece, id});
  return PieceTrie(std::move(entries));
}

}  // namespace

Unigram::Unigram(PieceTable vocab, std::vector<double> scores, std::span<const int32_t> matched,
                 UnigramOptions options)
    : serial_(next_model_serial()),
      vocab_(std::move(vocab)),
      scores_(std::move(scores)),
      trie_(make_trie(vocab_, matched)),
      options_(options),
      byte_ids_(byte_piece_ids(vocab_)) {}

template <typename Real>
void Unigram::find_best(std::string_view word, std::vector<Node>& nodes) const {
  nodes.assign(word.size() + 1, {0, 0, kNone});
  nodes[0].id = 0;
  for (size_t begin = 0; begin < word.size();) {
    const uint32_t character = decode_utf8(word.data() + begin).bytes;
    const auto here = static_cast<Real>(nodes[begin].score);
    bool covered = false;
    // Among equal sums the one found first stays: the longer last piece.
    const auto offer = [&](size_t length, int32_t id, Real score) {
      Node& node = nodes[begin + length];
      const Real sum = score + here;
      if (node.id == kNone || sum > static_cast<Real>(node.score))
        node = {sum, static_cast<uint32_t>(begin), id};
    };
    trie_.for_each_prefix(word.substr(begin), [&](size_t length, int32_t id) {
      offer(length, id, static_cast<Real>(scores_[static_cast<size_t>(id)]));
      covered = covered || length == character;
    });
    if (!covered) {
      if (options_.unk_id < 0)
        throw TextError(
            formatted("the tokenizer has neither a piece for \"{}\" nor an unknown piece (unk_id)",
                      word.substr(begin, character)));
      offer(character, options_.unk_id, static_cast<Real>(options_.unk_score));
    }
    begin += character;
  }
}

void Unigram::append_unknown(std::string_view run, std::vector<int32_t>& out) const {
  // The fused run may spell a piece, as "<unk>" does.
  if (const auto id = vocab_.find(run)) return out.push_back(*id);
  const auto byte_id = [this](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
  if (options_.byte_fallback &&
      std::all_of(run.begin(), run.end(), [&](char c) { return byte_id(c) >= 0; })) {
    for (const char c : run) out.push_back(byte_id(c));
    return;
  }
  out.push_back(options_.unk_id);
}

void Unigram::append_best(std::string_view word, const std::vector<Node>& nodes,
                          std::vector<int32_t>& out) const {
  thread_local std::vector<uint32_t> ends;
  ends.clear();
  for (size_t end = word.size(); end > 0; end = nodes[end].begin) {
    reserve_more(ends, 1);
    ends.push_back(static_cast<uint32_t>(end));
  }
  reserve_more(out, ends.size());
  for (size_t i = ends.size(); i > 0;) {
    const Node& node = nodes[ends[--i]];
    if (node.id != options_.unk_id) {
      out.push_back(node.id);
      continue;
    }
    // Neighbouring unknown characters are one.
    while (i > 0 && nodes[ends[i - 1]].id == options_.unk_id) --i;
    append_unknown(word.substr(node.begin, ends[i] - node.begin), out);
  }
  if (ends.capacity() > kMostKeptNodes) ends = std::vector<uint32_t>();
}

void Unigram::tokenize(std::string_view word, std::vector<int32_t>& out) const {
  WordCache& cache = WordCache::of_thread(serial_);
  if (const auto ids = cache.find(word); !ids.empty()) {
    out.insert(out.end(), ids.begin(), ids.end());
    return;
  }
  thread_local std::vector<Node> nodes;
  if (options_.in_float)
    find_best<float>(word, nodes);
  else
    find_best<double>(word, nodes);
  const size_t before = out.size();
  append_best(word, nodes, out);
  cache.put(word, std::span(out).subspan(before));
  if (nodes.capacity() > kMostKeptNodes) nodes = std::vector<Node>();
}

int64_t Unigram::resident_bytes() const {
  return vocab_.resident_bytes() + trie_.resident_bytes() +
         static_cast<int64_t>(sizeof *this + scores_.capacity() * sizeof(double));
}

}  // namespace plimsoll
