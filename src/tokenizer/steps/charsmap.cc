#include "tokenizer/steps/charsmap.h"

#include <algorithm>
#include <cstring>

#include "unicode/grapheme.h"
#include "unicode/utf8.h"

namespace plimsoll {
namespace {

// A unit of the trie.
uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & (1U << 9)) >> 6); }
uint32_t label_of(uint32_t unit) { return unit & (1U << 31 | 0xFF); }
bool has_leaf(uint32_t unit) { return (unit & 1U << 8) != 0; }
uint32_t value_of(uint32_t unit) { return unit & ~(1U << 31); }

constexpr size_t kLongestEntry = 256;  // bytes; nmt_nfkc has 18

// Clusters from this length on are looked up character by character.
constexpr size_t kLongCluster = 6;

int base64_digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

}  // namespace

std::optional<std::string> decode_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  for (int padding = 0; padding < 2 && text.ends_with('='); ++padding) text.remove_suffix(1);
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int digit = base64_digit(c);
    if (digit < 0) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out.push_back(static_cast<char>(bits >> count & 0xFF));
  }
  return out;
}

Charsmap::Charsmap(std::string_view blob, const std::string& place) {
  uint32_t trie_bytes = 0;
  if (blob.size() >= sizeof trie_bytes) std::memcpy(&trie_bytes, blob.data(), sizeof trie_bytes);
  if (trie_bytes < sizeof(uint32_t) || trie_bytes % sizeof(uint32_t) != 0 ||
      trie_bytes > blob.size() - sizeof trie_bytes)
    throw DamagedError(place + ": not a precompiled character map");
  units_.resize(trie_bytes / sizeof(uint32_t));
  std::memcpy(units_.data(), blob.data() + sizeof trie_bytes, trie_bytes);
  replacements_ = blob.substr(sizeof trie_bytes + trie_bytes);
  if (!is_valid_utf8(replacements_)) throw DamagedError(place + ": the character map's strings are no UTF-8");
}

std::optional<Charsmap::Match> Charsmap::find(std::string_view text, bool longest) const {
  std::optional<Match> found;
  size_t node = offset_of(units_[0]);
  const size_t longest_entry = std::min(text.size(), kLongestEntry);  // a damaged trie may go round
  for (size_t i = 0; i < longest_entry && text[i] != '\0'; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (node >= units_.size() || label_of(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_leaf(unit) || node >= units_.size()) continue;
    const size_t place = value_of(units_[node]);
    // A damaged map points outside, or into a character.
    if (place > replacements_.size() ||
        (place < replacements_.size() && (static_cast<unsigned char>(replacements_[place]) & 0xC0) == 0x80))
      continue;
    const std::string_view rest = std::string_view(replacements_).substr(place);
    found = Match{i + 1, rest.substr(0, rest.find('\0'))};
    if (!longest) break;
  }
  return found;
}

int64_t Charsmap::resident_bytes() const {
  return static_cast<int64_t>(units_.capacity() * sizeof(uint32_t) + replacements_.capacity());
}

PrecompiledNormalizer::PrecompiledNormalizer(Charsmap map) : map_(std::move(map)) {
  for (size_t c = 0; c < ascii_.size(); ++c) {
    const std::string text(1, static_cast<char>(c));
    const auto match = map_.shortest(text);
    ascii_[c] = match ? match->replacement : text;
  }
}

void PrecompiledNormalizer::append_cluster(std::string_view cluster, std::string& out) const {
  if (cluster.size() < kLongCluster)
    if (const auto match = map_.shortest(cluster)) {
      out += match->replacement;
      return;
    }
  for (size_t i = 0; i < cluster.size();) {
    const std::string_view c = cluster.substr(i, decode_utf8(cluster.data() + i).bytes);
    const auto match = map_.shortest(c);
    out += match ? match->replacement : c;
    i += c.size();
  }
}

void PrecompiledNormalizer::apply(NormalText& normal) const {
  const std::string_view text = normal.text();
  const auto is_ascii = [text](size_t i) { return static_cast<unsigned char>(text[i]) < 0x80; };
  std::string& out = normal.begin();
  for (size_t i = 0; i < text.size();) {
    // An ASCII character before another one is a cluster, but for "\r\n".
    const bool alone = is_ascii(i) && (i + 1 == text.size() || (is_ascii(i + 1) && text[i] != '\r'));
    const size_t bytes = alone ? 1 : grapheme_bytes(text.substr(i));
    reserve_more(out, bytes);
    if (alone)
      out += ascii_[static_cast<unsigned char>(text[i])];
    else
      append_cluster(text.substr(i, bytes), out);
    if (out.size() > normal.most()) refuse_growth(text.size());
    i += bytes;
  }
  normal.commit();  // the reference forgets a removed first character: the start is not lost
}

std::unique_ptr<Normalizer> make_precompiled_normalizer(const JsonPart& json, std::string_view type) {
  if (type != "Precompiled") return nullptr;
  const auto text = json.find("precompiled_charsmap");
  // Some converters write null for a model without a map.
  const auto blob = decode_base64(text ? text->text() : "");
  if (!blob) text->damaged("not base64");
  if (blob->empty()) return std::make_unique<NormalizerSequence>();
  return std::make_unique<PrecompiledNormalizer>(Charsmap(*blob, text->place()));
}

}  // namespace plimsoll
