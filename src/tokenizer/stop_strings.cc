#include "tokenizer/stop_strings.h"

#include <algorithm>
#include <utility>

namespace plimsoll {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase(stops_, "");
}

std::string StopStrings::push(std::string_view piece) {
  if (found_) return {};
  pending_ += piece;
  size_t end = std::string::npos;
  for (const std::string& stop : stops_) end = std::min(end, pending_.find(stop));
  if (end != std::string::npos) {
    found_ = true;
    return std::exchange(pending_, {}).substr(0, end);
  }
  size_t held = 0;  // the longest end of the text that begins a stop
  for (const std::string& stop : stops_) {
    size_t length = std::min(stop.size() - 1, pending_.size());
    while (length > held && !pending_.ends_with(std::string_view(stop).substr(0, length))) --length;
    held = std::max(held, length);
  }
  std::string text = pending_.substr(0, pending_.size() - held);
  pending_.erase(0, text.size());
  return text;
}

std::string StopStrings::finish() { return std::exchange(pending_, {}); }

}  // namespace plimsoll
