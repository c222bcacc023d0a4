// Files and folders of their owner's alone, whatever the umask of the process is.
#pragma once

#include <sys/stat.h>

#include <filesystem>

namespace plimsoll::queue {

// The umask of this process while it is there.
class Umask {
 public:
  explicit Umask(mode_t mask) : before_(umask(mask)) {}
  Umask(const Umask&) = delete;
  Umask& operator=(const Umask&) = delete;
  ~Umask() { umask(before_); }

 private:
  mode_t before_;
};
inline constexpr mode_t kOwnersAlone = 077;

mode_t own_umask();

// A folder for its owner alone is created; one that is there must be so already. Throws UsageError where it
// is not.
void make_private(const std::filesystem::path& folder);

}  // namespace plimsoll::queue
