// Writes and reads the attribute of word_scores and its gradient.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace plimsoll {

// Attribute `words`: the tokens whose logits are the scores, "3681 8178".
std::string words_text(std::span<const int32_t> words);
std::vector<int32_t> words_of(const Op& op);

}  // namespace plimsoll
