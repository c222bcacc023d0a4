// The kinds of GPUs that a recipe could be trained on, for callers that plan it once for each kind and not
// for a card that is free now: no card is opened.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "recipe/load/load.h"

namespace plimsoll {

struct CardModel {
  std::string name;  // "RTX 3060 12GB", as memory.gpu takes it
  std::string only;  // UUID, where the recipe names one card (device: cuda:1); empty: any card of the model
  int64_t memory_bytes = 0;  // of the largest such card that is here; 0: none is
};

// The kinds of cards that the recipe can run on. If it states no precision and some have bf16, only those: a
// run computes in the same precision on each of its cards.
struct CardModels {
  std::vector<CardModel> models;  // empty: the recipe is for the CPU
  std::string problem;    // why none of the cards that are here can be used; empty: there is none, or one can
  std::string note = {};  // what was left out, for people
};

// By `device` and memory.gpu: a card that is named may be elsewhere. Throws UsageError where device: cuda
// finds no card that can be used, and for device: card without a name.
CardModels card_models(const LoadedRecipe& loaded);

}  // namespace plimsoll
