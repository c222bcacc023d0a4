#include "text/added_tokens.h"

#include <algorithm>

#include "text/unicode_classes.h"
#include "text/utf8.h"

namespace plimsoll {
namespace {

uint64_t edge_key(uint32_t node, char byte) { return uint64_t{node} << 8 | static_cast<unsigned char>(byte); }

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

// A node of std::unordered_map with its share of the bucket array.
constexpr size_t kMapOverhead = 24;

}  // namespace

void AddedTokenMatcher::add(const AddedToken& token) {
  const std::string& pattern = token.spelling;
  if (pattern.empty()) return;
  starts_[static_cast<unsigned char>(pattern[0])] = true;
  uint32_t node = 0;
  for (const char byte : pattern) {
    const auto next = static_cast<uint32_t>(token_of_node_.size());
    const auto [edge, is_new] = edges_.try_emplace(edge_key(node, byte), next);
    if (is_new) token_of_node_.push_back(-1);
    node = edge->second;
  }
  // Of two tokens with one pattern the first wins.
  if (token_of_node_[node] < 0) token_of_node_[node] = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
}

AddedTokenMatcher::Found AddedTokenMatcher::longest_at(std::string_view text) const {
  Found found{0, nullptr};
  uint32_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto edge = edges_.find(edge_key(node, text[i]));
    if (edge == edges_.end()) break;
    node = edge->second;
    if (const int32_t token = token_of_node_[node]; token >= 0)
      found = {i + 1, &tokens_[static_cast<size_t>(token)]};
  }
  return found;
}

void AddedTokenMatcher::cut(std::string_view text, std::vector<Segment>& out) const {
  size_t done = 0;  // everything before is in `out`
  for (size_t i = 0; i < text.size() && !empty();) {
    const Found found = starts_[static_cast<unsigned char>(text[i])] ? longest_at(text.substr(i)) : Found{};
    if (found.token == nullptr) {
      ++i;
      continue;
    }
    const AddedToken& token = *found.token;
    size_t begin = i;
    size_t end = i + found.length;
    i = end;  // the search goes on right behind the match, whatever it strips or is refused for
    if (token.single_word && !is_single_word(text.substr(0, begin), text.substr(end))) continue;
    if (token.lstrip) begin = std::max(begin - spaces_at_end(text.substr(0, begin)), done);
    if (token.rstrip) end += spaces_at_start(text.substr(end));
    if (done < begin) out.push_back({-1, text.substr(done, begin - done)});
    out.push_back({token.id, text.substr(begin, end - begin)});
    done = end;
  }
  if (done < text.size()) out.push_back({-1, text.substr(done)});
}

int64_t AddedTokenMatcher::resident_bytes() const {
  size_t bytes = edges_.size() * (sizeof(uint64_t) * 2 + kMapOverhead) +
                 token_of_node_.capacity() * sizeof(int32_t) + tokens_.capacity() * sizeof(AddedToken);
  for (const AddedToken& token : tokens_) bytes += token.content.capacity();
  return static_cast<int64_t>(bytes);
}

AddedTokens::AddedTokens(const std::optional<JsonPart>& list, const PieceTable& vocab,
                         const Normalizer* normalizer) {
  std::vector<AddedToken> in_order;
  if (!list) return;
  for (const JsonPart& json : list->items()) {
    AddedToken token = read_token(json);
    if (token.content.empty() || by_content_.contains(token.content)) continue;
    // A piece of the vocabulary keeps its id, any other gets the next free one, in the order of the list.
    const std::optional<int32_t> known = vocab.find(token.content);
    const int64_t expected = known ? *known : std::max(vocab.size(), end_id_);
    if (expected != token.id)
      throw UsageError(json.place() + ": the added token \"" + token.content + "\" has the id " +
                       std::to_string(token.id) + " in the file but would be tokenised as " +
                       std::to_string(expected) + "; correct the ids in added_tokens");
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
  end_id_ = std::max(end_id_, int64_t{token.id} + 1);
  by_content_[token.content] = token.id;
  by_id_[token.id] = token;
}

void AddedTokens::prepare(std::vector<AddedToken> in_order) {
  std::stable_partition(in_order.begin(), in_order.end(), [](const AddedToken& t) { return t.special; });
  for (const AddedToken& token : in_order) (token.normalized ? normalized_ : raw_).add(token);
}

const AddedToken* AddedTokens::find(int32_t id) const {
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
