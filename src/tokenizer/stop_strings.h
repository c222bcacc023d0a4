// Texts that end an answer, wherever the pieces of a stream break them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

// Pieces must be whole characters (StreamDecoder's are): then what comes out is, too.
class StopStrings {
 public:
  // Empty ones are ignored.
  explicit StopStrings(std::vector<std::string> stops);

  // The text that is certain not to begin a stop. After one was found, nothing more.
  std::string push(std::string_view piece);
  // The end of the stream: what was held back.
  std::string finish();
  [[nodiscard]] bool found() const { return found_; }

 private:
  std::vector<std::string> stops_;
  std::string pending_;
  bool found_ = false;
};

}  // namespace plimsoll
