// Style and script of the plan's page.
#pragma once

namespace plimsoll {

extern const char* const kPageStyle;
// Expects `plan`, an object with programs, components, tensors and moments (timeline_page.cc).
extern const char* const kPageScript;

}  // namespace plimsoll
