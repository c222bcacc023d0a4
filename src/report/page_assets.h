// Style and script of a run's page.
#pragma once

namespace plimsoll {

extern const char* const kRunStyle;
// Expects `data` (run_page.cc): points[] of [step, loss, rate, speed, memory], words[] of the readout for
// each, first and last step.
extern const char* const kRunScript;

}  // namespace plimsoll
