// The five pre-tokenising expressions of published byte-level models, matched by hand.
//
// A general regex engine is several times slower and its Unicode tables are of another version; std::regex
// overflows the stack on long runs. Every expression matches at every position, so the pieces cover the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace plimsoll {

enum class KnownRegex : uint8_t {
  gpt2,    // also what ByteLevel(use_regex) runs
  qwen2,   // Qwen 1.5 to 3: single digits, contractions in any case
  qwen35,  // Qwen 3.5: marks join the letters
  llama3,  // as qwen2, up to three digits
  tekken,  // Mistral Nemo and later: words split where case changes
};

// The scanner whose expression is `regex`, character for character.
std::optional<KnownRegex> known_regex(std::string_view regex);

// Appends the pieces of `text` (valid UTF-8), in time linear in its length, `most` of them. Returns the bytes that these have.
size_t scan(KnownRegex regex, std::string_view text, std::vector<std::string_view>& out,
            size_t most = SIZE_MAX);

}  // namespace plimsoll
