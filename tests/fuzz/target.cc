#include "fuzz/target.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
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

FuzzFolder::FuzzFolder() {
  // In memory where the system has such a place: SQLite flushes what it writes.
  const std::filesystem::path in_memory = "/dev/shm";
  const bool writable = access(in_memory.c_str(), W_OK) == 0;
  std::string name =
      ((writable ? in_memory : std::filesystem::temp_directory_path()) / "fuzz-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::system_error(errno, std::generic_category(), "mkdtemp");
  path_ = name;
}

FuzzFolder::~FuzzFolder() {
  std::error_code failed;
  std::filesystem::remove_all(path_, failed);
}

std::filesystem::path FuzzFolder::write(const std::string& name, std::string_view content) const {
  std::ofstream(path_ / name, std::ios::binary) << content;
  return path_ / name;
}

void FuzzFolder::clear() const {
  for (const auto& entry : std::filesystem::directory_iterator(path_))
    std::filesystem::remove_all(entry.path());
}

}  // namespace plimsoll
