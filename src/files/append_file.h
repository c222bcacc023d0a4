// A file that grows by whole pieces at its end: the logs of a run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace plimsoll {

class AppendFile {
 public:
  // Made where it is absent. What lies beyond `kept_bytes` is cut off. Follows no link, and waits for no
  // reader: StoppedError for what is no regular file or cannot be written.
  AppendFile(std::filesystem::path path, int64_t kept_bytes);
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&&) = delete;
  ~AppendFile();

  // Allocates nothing. Throws StoppedError; then nothing of the piece is there, so that what follows it is
  // whole.
  void write(std::string_view piece);
  void sync();

 private:
  [[noreturn]] void stop(int error) const;

  std::filesystem::path path_;
  int descriptor_ = -1;
  int64_t bytes_ = 0;
};

}  // namespace plimsoll
