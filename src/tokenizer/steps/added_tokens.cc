#include "tokenizer/steps/added_tokens.h"

#include <algorithm>

#include "base/format.h"
#include "unicode/unicode_classes.h"
#include "unicode/utf8.h"

namespace plimsoll {
namespace {

bool has_class(const Utf8Char& c, uint8_t mask) { return (unicode_classes()[c.code] & mask) != 0; }

bool is_single_word(std::string_view before, std::string_view after) {
  const bool word_before =
      !before.empty() && has_class(decode_utf8_before(before.data() + before.size()), kWord);
  return !word_before && (after.empty() || !has_class(decode_utf8(after.data()), kWord));
}

size_t spaces_at_end(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    const Utf8Char c = decode_utf8_before(text.data() + end);
    if (!has_class(c, kSpace)) break;
    end -= c.bytes;
  }
  return text.size() - end;
}

size_t spaces_at_start(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const Utf8Char c = decode_utf8(text.data() + i);
    if (!has_class(c, kSpace)) break;
    i += c.bytes;
  }
  return i;
}

AddedToken read_token(const JsonPart& json) {
  return {.content = json.at("content").text(),
          .id = json.at("id").id(),
          .special = json.flag_or("special", false),
          .normalized = json.flag_or("normalized", true),
          .lstrip = json.flag_or("lstrip", false),
          .rstrip = json.flag_or("rstrip", false),
          .single_word = json.flag_or("single_word", false),
          .spelling = {}};
}

std::string normal_form(const Normalizer* normalizer, const std::string& content) {
  if (normalizer == nullptr) return content;
  NormalText text;
  text.reset(content, true);
  normalizer->apply(text);
  return std::string(text.text());
}

// Their tables take about 40 bytes for each. The largest known list has 100 kB.
constexpr size_t kMostContent = size_t{4} << 20;

// A node of std::unordered_map with its share of the bucket array.
constexpr size_t kMapOverhead = 24;

}  // namespace

// The longest token at one place after another, from left to right.
class AddedTokenMatcher::Search {
 public:
  Search(const AddedTokenMatcher& matcher, std::string_view text)
      : matcher_(matcher),
        text_(text),
        walks_left_(matcher.backward_.empty() ? INT64_MAX : static_cast<int64_t>(4 * text.size() + 4096)) {}

  // Index of the token, or -1. One may begin there.
  int32_t longest_at(size_t i) { return walks_left_ > 0 ? walk_from(i) : look_up(i); }

 private:
  int32_t walk_from(size_t i) {
    const ByteTrie& trie = matcher_.forward_;
    int32_t found = -1;
    uint32_t node = ByteTrie::kRoot;
    for (; i < text_.size(); ++i, --walks_left_) {
      node = trie.child(node, text_[i]);
      if (node == ByteTrie::kNone) break;
      if (trie.value(node) >= 0) found = trie.value(node);
    }
    return found;
  }

  int32_t look_up(size_t i) {
    if (i < block_begin_ || i >= block_begin_ + block_.size()) read_block(i);
    return block_[i - block_begin_];
  }

  // The longest tokens at [begin, ...), by one walk from right to left that begins a token's length behind
  // them: what it has read last is then the start of everything that begins there.
  void read_block(size_t begin) {
    constexpr size_t kLeast = size_t{1} << 16;
    const size_t size = std::min(std::max(kLeast, matcher_.longest_), text_.size() - begin);
    block_begin_ = begin;
    block_.assign(size, -1);
    const ByteTrie& trie = matcher_.backward_;
    uint32_t node = ByteTrie::kRoot;
    for (size_t i = std::min(text_.size(), begin + size + matcher_.longest_); i-- > begin;) {
      node = trie.follow(node, text_[i]);
      if (i < begin + size) block_[i - begin] = trie.longest_value(node);
    }
  }

  const AddedTokenMatcher& matcher_;
  std::string_view text_;
  int64_t walks_left_;  // bytes that walks from single places may still read
  size_t block_begin_ = 0;
  std::vector<int32_t> block_;
};

void AddedTokenMatcher::add(const AddedToken& token) {
  const std::string& pattern = token.spelling;
  if (pattern.empty()) return;
  const bool alike = tokens_.empty() || only_start_ == pattern[0];
  only_start_ = alike ? std::optional(pattern[0]) : std::nullopt;
  starts_[static_cast<unsigned char>(pattern[0])] = true;
  // The first of two tokens with one pattern wins.
  forward_.add(pattern, static_cast<int32_t>(tokens_.size()));
  longest_ = std::max(longest_, pattern.size());
  tokens_.push_back(token);
}

void AddedTokenMatcher::finish() {
  constexpr size_t kShort = 64;
  if (longest_ <= kShort) return;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& pattern = tokens_[i].spelling;
    backward_.add(std::string(pattern.rbegin(), pattern.rend()), static_cast<int32_t>(i));
  }
  backward_.add_failure_links();
}

size_t AddedTokenMatcher::next_start(std::string_view text, size_t from) const {
  if (only_start_) return std::min(text.find(*only_start_, from), text.size());
  while (from < text.size() && !starts_[static_cast<unsigned char>(text[from])]) ++from;
  return from;
}

void AddedTokenMatcher::cut(std::string_view text, std::vector<Segment>& out) const {
  Search search(*this, text);
  size_t done = 0;                        // everything before is in `out`
  size_t white_begin = 0, white_end = 0;  // white space that was walked through
  for (size_t i = empty() ? text.size() : 0; (i = next_start(text, i)) < text.size();) {
    const int32_t found = search.longest_at(i);
    if (found < 0) {
      ++i;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(found)];
    size_t begin = i;
    size_t end = i + token.spelling.size();
    i = end;  // the search continues right behind the match, whatever it strips or is refused for
    if (token.single_word && !is_single_word(text.substr(0, begin), text.substr(end))) continue;
    if (token.lstrip && begin > done) begin -= spaces_at_end(text.substr(done, begin - done));
    if (token.rstrip) {
      if (end < white_begin || end > white_end) {
        white_begin = end;
        white_end = end + spaces_at_start(text.substr(end));
      }
      end = white_end;
    }
    if (done < begin) out.push_back({-1, text.substr(done, begin - done)});
    out.push_back({token.id, text.substr(begin, end - begin)});
    done = end;
  }
  if (done < text.size()) out.push_back({-1, text.substr(done)});
}

int64_t AddedTokenMatcher::resident_bytes() const {
  size_t bytes = tokens_.capacity() * sizeof(AddedToken);
  for (const AddedToken& token : tokens_) bytes += token.content.capacity();
  return static_cast<int64_t>(bytes) + forward_.resident_bytes() + backward_.resident_bytes();
}

AddedTokens::AddedTokens(const std::optional<JsonPart>& list, const PieceTable& vocab,
                         const Normalizer* normalizer) {
  std::vector<AddedToken> in_order;
  if (!list) return;
  size_t bytes = 0;
  for (const JsonPart& json : list->items()) {
    AddedToken token = read_token(json);
    if (token.content.empty() || by_content_.contains(token.content)) continue;
    // A piece of the vocabulary keeps its id, any other gets the next free one, in the order of the list.
    const std::optional<int32_t> known = vocab.find(token.content);
    const int64_t expected = known ? *known : std::max(vocab.size(), end_id_);
    if (expected != token.id)
      throw UsageError(formatted(
          "{}: the added token \"{}\" has the id {} in the file but would be tokenised as {}; correct the "
          "ids in added_tokens",
          json.place(), token.content, token.id, expected));
    bytes += token.content.size();
    if (bytes > kMostContent)
      throw UsageError(formatted(
          "{}: the added tokens have more than {} bytes together, which no known tokenizer comes near",
          list->place(), kMostContent));
    token.spelling = token.normalized ? normal_form(normalizer, token.content) : token.content;
    add(token);
    in_order.push_back(std::move(token));
  }
  prepare(std::move(in_order));
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) {
  for (const AddedToken& token : tokens) add(token);
  prepare(std::move(tokens));
}

void AddedTokens::add(const AddedToken& token) {
  first_id_ = std::min(first_id_, int64_t{token.id});
  end_id_ = std::max(end_id_, int64_t{token.id} + 1);
  by_content_[token.content] = token.id;
  by_id_[token.id] = token;
}

void AddedTokens::prepare(std::vector<AddedToken> in_order) {
  std::stable_partition(in_order.begin(), in_order.end(), [](const AddedToken& t) { return t.special; });
  for (const AddedToken& token : in_order) (token.normalized ? normalized_ : raw_).add(token);
  for (AddedTokenMatcher* matcher : {&raw_, &normalized_}) matcher->finish();
}

const AddedToken* AddedTokens::find(int32_t id) const {
  if (id < first_id_ || id >= end_id_) return nullptr;  // as most tokens of a text are
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : &it->second;
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto it = by_content_.find(std::string(content));
  return it == by_content_.end() ? nullptr : find(it->second);
}

int64_t AddedTokens::resident_bytes() const {
  int64_t bytes = raw_.resident_bytes() + normalized_.resident_bytes();
  for (const auto& [id, token] : by_id_)
    bytes += static_cast<int64_t>(sizeof(AddedToken) + 2 * token.content.capacity() + sizeof(std::string) +
                                  2 * kMapOverhead);
  return bytes;
}

}  // namespace plimsoll
