#include "fuzz/target.h"

#include <sys/mman.h>
#include <unistd.h>

#include <system_error>

namespace plimsoll {

FuzzFile::FuzzFile() : descriptor_(memfd_create("fuzz", MFD_CLOEXEC)) {
  if (descriptor_ < 0) throw std::system_error(errno, std::generic_category(), "memfd_create");
  path_ = "/proc/self/fd/" + std::to_string(descriptor_);
}

FuzzFile::~FuzzFile() { close(descriptor_); }

const std::string& FuzzFile::holding(std::string_view content) {
  if (ftruncate(descriptor_, 0) != 0 ||
      pwrite(descriptor_, content.data(), content.size(), 0) != static_cast<ssize_t>(content.size()))
    throw std::system_error(errno, std::generic_category(), "writing the input");
  return path_;
}

}  // namespace plimsoll
