// What the combining of other tools' keys asks of what a file said.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/layer.h"
#include "recipe/option.h"

namespace plimsoll {

inline bool is_true(const Said* said) { return said != nullptr && said->value.text == "true"; }
inline bool is_word(const Said* said, std::string_view word) {
  return said != nullptr && said->value.text == word;
}

inline std::vector<const Said*> present(std::initializer_list<const Said*> parts) {
  std::vector<const Said*> all;
  for (const Said* part : parts)
    if (part != nullptr) all.push_back(part);
  return all;
}

inline std::string percent(double share) { return to_yaml(Json(share * 100.0)) + "%"; }

}  // namespace plimsoll
