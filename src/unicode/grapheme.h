// Extended grapheme clusters (Unicode Annex 29): what readers see as one character.
#pragma once

#include <cstddef>
#include <string_view>

namespace plimsoll {

// Bytes of the cluster at the start of `text` (not empty, valid UTF-8), which must start a cluster.
size_t grapheme_bytes(std::string_view text);

}  // namespace plimsoll
