// Chooses the device on which a recipe is planned and trained where it leaves that open (device: auto) or
// names a card, and the precision where it states none.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "recipe/load/load.h"

namespace plimsoll {

struct DeviceWish {
  bool trains = false;     // on a card of this machine; `plan` is for cards elsewhere too
  bool resumes = false;    // where the run began
  bool elsewhere = false;  // planned for another machine: no card of this one is looked at
  int64_t nodes = 1;       // machines that share several devices
  // Commands that the refusal of a missing GPU may print: on a GPU of this machine, and on the CPU.
  std::string on_card = {}, on_cpu = {};
};

struct ChosenDevice {
  Recipe recipe;  // which says it: device: cuda and the card's UUID, or as it was
  std::vector<std::string>
      lines;               // for a terminal: which one, or why not a card; a precision that was not stated
  bool by_itself = false;  // `device: auto` took a card
};

// `auto` is a card of this machine that can be used, of several the one with the most free memory; else the
// CPU. A run that was begun on the CPU continues there. Throws UsageError where a card is named that is not
// here, and trained on.
ChosenDevice choose_device(const LoadedRecipe& loaded, const DeviceWish& wish);

// bf16 is the default; a card without it computes in fp16. Returns the line that reports it.
std::string take_precision(bool is_stated, Recipe& recipe);

// A refusal of device: cuda, without the advice for users who asked for it.
std::string reason_of(const Error& error);

// The line for `auto` that took a card which the recipe does not fit, so that the CPU is used instead.
std::string too_small_line(const std::string& refusal);

}  // namespace plimsoll
