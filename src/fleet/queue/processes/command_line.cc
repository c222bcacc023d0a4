#include "fleet/queue/processes/command_line.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>

namespace plimsoll {
namespace {

// The addresses between which the kernel reads the words, by /proc/self/stat; {0, 0} if it does not report
// them.
std::pair<uintptr_t, uintptr_t> words_range() {
  constexpr int kFirst = 48;  // of proc(5): arg_start, and arg_end behind it
  std::ifstream file("/proc/self/stat");
  std::string stat((std::istreambuf_iterator<char>(file)), {});
  const size_t name_end = stat.rfind(')');  // the second field, which may hold anything
  if (name_end == std::string::npos) return {};
  std::istringstream fields(stat.substr(name_end + 1));
  std::string skipped;
  for (int i = 3; i < kFirst; ++i) fields >> skipped;
  uintptr_t start = 0, end = 0;
  return fields >> start >> end ? std::pair(start, end) : std::pair<uintptr_t, uintptr_t>();
}

}  // namespace

void show_command_as(const std::string& text) {
  const auto [start, end] = words_range();
  if (start == 0 || end <= start + 1) return;
  auto* const words = reinterpret_cast<char*>(start);
  const size_t room = end - start - 1;  // the last byte stays 0: behind it stands the environment
  const size_t shown = std::min(room, text.size());
  std::memcpy(words, text.data(), shown);
  std::memset(words + shown, 0, room - shown);
}

}  // namespace plimsoll
