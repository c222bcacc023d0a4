// Turns matches into words, for Split and Digits.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/files/json_part.h"

namespace plimsoll {

enum class SplitBehavior : uint8_t { removed, isolated, merged_with_previous, merged_with_next, contiguous };

// Throws UsageError for an unknown name.
SplitBehavior parse_split_behavior(const JsonPart& json);

// A stretch of a text; the spans of one text cover it in order.
struct Span {
  size_t begin;
  size_t end;
  bool is_match;
};

// Adds the stretches between the matches that `spans` lacks.
std::vector<Span> fill_gaps(const std::vector<Span>& matches, size_t text_size);

// Hands over the words of `text` that `behavior` makes of its spans.
void apply_split(SplitBehavior behavior, std::string_view text, const std::vector<Span>& spans,
                 const std::function<void(std::string_view)>& take);

}  // namespace plimsoll
