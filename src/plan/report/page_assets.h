// Style and script of the plan's page.
#pragma once

namespace plimsoll {

extern const char* const kPlanStyle;
// Expects `data`, an object with programs, components, tensors and moments (timeline_page.cc).
extern const char* const kPlanScript;

}  // namespace plimsoll
