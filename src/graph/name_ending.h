// Names that end alike: ".re" behind the names of many tensors, in each of hundreds of programs.
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/name.h"

namespace plimsoll {

// An ending of names; what it makes of a name is looked up once, and found by that name from then on. Safe to
// use from several threads.
class NameEnding {
 public:
  explicit NameEnding(std::string_view ending) : ending_(ending) {}
  // `base` with the ending.
  [[nodiscard]] Name behind(const Name& base);

 private:
  struct Known {
    const std::string* base = nullptr;
    Name whole;
  };
  [[nodiscard]] Known& place_of(const std::string* base);
  void grow();

  std::string ending_;
  std::mutex mutex_;
  std::vector<Known> known_ = std::vector<Known>(256);  // open addressing
  size_t count_ = 0;
};

}  // namespace plimsoll
