#pragma once
// A test's grid is cut into thirds as tests/shard.py has it: .ci/run names slices in PLIMSOLL_SHARDS ("every_variant/0 run/0").
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string>

namespace plimsoll::test {

// All of a test that is not named. The digits of `index` to the base of three are added: a slice is of all values of an inner loop of
// three, not of one of them. Throws for a slice that does not exist: it would run nothing.
inline bool in_slice(const std::string& test, size_t index) {
  const char* named = std::getenv("PLIMSOLL_SHARDS");
  std::istringstream words(named ? named : "");
  size_t slice = 0;
  for (; index > 0; index /= 3) slice += index % 3;
  bool cut = false, mine = false;
  for (std::string word; words >> word;) {
    if (!word.starts_with(test + "/")) continue;
    const std::string requested = word.substr(test.size() + 1);
    if (requested != "0" && requested != "1" && requested != "2")
      throw std::invalid_argument("PLIMSOLL_SHARDS: " + word + " is no slice: there are 0, 1 and 2");
    cut = true;
    mine = mine || requested == std::to_string(slice % 3);
  }
  return mine || !cut;
}

}  // namespace plimsoll::test
