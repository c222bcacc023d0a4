#include "tokenizer/steps/pattern.h"

#include <cstring>

#include "unicode/text_error.h"

namespace plimsoll {

Pattern::Pattern(const JsonPart& json) {
  if (json.has("Regex")) {
    const std::string& expression = json.at("Regex").text();
    regex_.emplace(expression, json.place());
    if (regex_->matches_nothing())
      json.refuse("expression", expression, "expressions that match one character or more");
    return;
  }
  literal_ = json.at("String").text();
  if (literal_.empty()) json.refuse("string", literal_, "strings of one character or more");
}

size_t Pattern::find(std::string_view text, size_t from) const {
  const void* place = memmem(text.data() + from, text.size() - from, literal_.data(), literal_.size());
  return place == nullptr ? text.npos : static_cast<size_t>(static_cast<const char*>(place) - text.data());
}

bool Pattern::replace(std::string_view text, std::string_view content, size_t most, std::string& out) const {
  size_t done = 0;
  bool found = false;
  for_each_match(text, [&](size_t begin, size_t end) {
    if (out.size() + (begin - done) + content.size() > most) refuse_growth(text.size());
    reserve_more(out, begin - done + content.size());
    out.append(text.substr(done, begin - done)).append(content);
    done = end;
    found = true;
  });
  if (!found) return false;
  reserve_more(out, text.size() - done);
  out.append(text.substr(done));
  return true;
}

}  // namespace plimsoll
