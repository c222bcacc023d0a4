// A name as a random key: FNV-1a, 64 bits. Fixed for ever, since checkpoints resume the random streams that
// it keys.
#pragma once

#include <cstdint>
#include <string_view>

namespace plimsoll {

inline constexpr uint64_t kNameHashStart = 0xCBF29CE484222325ULL;

// `hash` continues one over more text.
constexpr uint64_t name_hash(std::string_view name, uint64_t hash = kNameHashStart) {
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3ULL;
  return hash;
}

}  // namespace plimsoll
