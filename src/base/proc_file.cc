#include "base/proc_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

namespace plimsoll {

std::string read_proc(const std::filesystem::path& path) {
  constexpr size_t kMostBytes = 2 << 20;  // an environment may be as long as the arguments of execve
  std::string text;
  // PLIMSOLL_MEMINFO may name anything: nothing waits, and nothing is endless.
  const int file = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (file < 0) return text;
  std::array<char, 4096> piece{};
  for (ssize_t count = 1; count > 0 && text.size() < kMostBytes;) {
    count = ::read(file, piece.data(), piece.size());
    if (count > 0) text.append(piece.data(), static_cast<size_t>(count));
  }
  ::close(file);
  return text;
}

int64_t kib_field(std::string_view text, std::string_view key) {
  const std::string name = std::string(key) + ":";
  const size_t at = text.find(name);
  if (at == std::string_view::npos) return 0;
  return std::strtoll(std::string(text.substr(at + name.size(), 32)).c_str(), nullptr, 10) * 1024;
}

}  // namespace plimsoll
