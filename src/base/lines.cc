#include "base/lines.h"

namespace plimsoll {

std::string visible_breaks(std::string_view message) {
  std::string out;
  out.reserve(message.size());
  for (size_t i = 0; i < message.size(); ++i) {
    const std::string_view rest = message.substr(i);
    if (rest.starts_with("\r\n")) {
      out += "\\r";
    } else if (rest.starts_with('\n') && !rest.starts_with("\n  ")) {
      out += "\\n";
    } else {
      out += message[i];
    }
  }
  return out;
}

}  // namespace plimsoll
