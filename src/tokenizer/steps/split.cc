#include "tokenizer/steps/split.h"

namespace plimsoll {
namespace {

// Joins a span to the one before it in walking order where `joins(is_match, previous_is_match)`; `grow`
// extends the earlier one.
template <typename Range, typename Joins, typename Grow>
std::vector<Span> merge(const Range& spans, Joins joins, Grow grow) {
  std::vector<Span> merged;
  bool previous = false;
  for (const Span& span : spans) {
    if (joins(span.is_match, previous) && !merged.empty())
      grow(merged.back(), span);
    else
      merged.push_back(span);
    previous = span.is_match;
  }
  return merged;
}

void grow_end(Span& kept, const Span& next) { kept.end = next.end; }
void grow_begin(Span& kept, const Span& next) { kept.begin = next.begin; }
bool equal_kind(bool is_match, bool previous) { return is_match == previous; }
bool match_after_text(bool is_match, bool previous) { return is_match && !previous; }

std::vector<Span> words_of(SplitBehavior behavior, const std::vector<Span>& spans) {
  switch (behavior) {
    case SplitBehavior::contiguous:
      return merge(spans, equal_kind, grow_end);
    case SplitBehavior::merged_with_previous:
      return merge(spans, match_after_text, grow_end);
    case SplitBehavior::merged_with_next: {
      const std::vector<Span> reversed(spans.rbegin(), spans.rend());
      const std::vector<Span> merged = merge(reversed, match_after_text, grow_begin);
      return {merged.rbegin(), merged.rend()};
    }
    case SplitBehavior::removed:
    case SplitBehavior::isolated:
      break;
  }
  return spans;
}

}  // namespace

SplitBehavior parse_split_behavior(const JsonPart& json) {
  const std::string& name = json.text();
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  json.refuse("behavior", name, "Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
}

std::vector<Span> fill_gaps(const std::vector<Span>& matches, size_t text_size) {
  std::vector<Span> spans;
  size_t end = 0;
  for (const Span& match : matches) {
    if (match.begin > end) spans.push_back({end, match.begin, false});
    spans.push_back(match);
    end = match.end;
  }
  if (end < text_size) spans.push_back({end, text_size, false});
  return spans;
}

void apply_split(SplitBehavior behavior, std::string_view text, const std::vector<Span>& spans,
                 const std::function<void(std::string_view)>& take) {
  for (const Span& span : words_of(behavior, spans))
    if (!(behavior == SplitBehavior::removed && span.is_match))
      take(text.substr(span.begin, span.end - span.begin));
}

}  // namespace plimsoll
