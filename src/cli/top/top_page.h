// Style, body and script of the page of `plimsoll top --serve`.
#pragma once

namespace plimsoll {

extern const char* const kTopStyle;
extern const char* const kTopBody;
// Reads frames (docs/reference/json.md) from /events. All that a frame holds becomes text, never HTML.
extern const char* const kTopScript;

}  // namespace plimsoll
