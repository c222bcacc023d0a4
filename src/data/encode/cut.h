// Cuts sequences to the length that is allowed.
#pragma once

#include <cstdint>
#include <vector>

#include "data/encode/example.h"
#include "tasks/rows.h"

namespace plimsoll {

// The longest that a sequence may be, and what happens to a longer one.
struct CutRule {
  int64_t max_length = 1024;
  Truncation truncation = Truncation::right;
};

// Cuts ids and labels alike; a sequence that is dropped is left without any. Throws DamagedError that starts
// with where() for one that is refused.
void cut_sequence(const CutRule& rule, const Where& where, Example& example);
[[noreturn]] void refuse_long(const CutRule& rule, int64_t tokens, const Where& where);

// Cuts two texts to `room` tokens together, as tokenizers' longest_first does: the longer one loses first.
void cut_pair(int64_t room, Truncation truncation, std::vector<int32_t>& first, std::vector<int32_t>& second);

// Cuts a text that is longer: an end is lost, the last token kept where it `ends` the text.
void cut_text(int64_t length, Truncation truncation, bool ends, std::vector<int32_t>& ids);

}  // namespace plimsoll
