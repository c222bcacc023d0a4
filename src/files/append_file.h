// A file that grows by whole pieces at its end: the logs of a run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <utility>

namespace plimsoll {

class AppendFile {
 public:
  // Made where it is absent. Bytes beyond `kept_bytes` are cut off. Follows no link, and waits for no reader:
  // throws StoppedError for a path that is not a regular file or cannot be written.
  AppendFile(std::filesystem::path path, int64_t kept_bytes);
  // For a path that a user named, made for that user alone: follows links, waits for the reader of a FIFO, and
  // appends to what is no regular file. Throws UsageError where it cannot be opened.
  static AppendFile of_user(std::filesystem::path path, int64_t kept_bytes);
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&&) = delete;
  ~AppendFile();

  // Allocates nothing. Throws StoppedError; then nothing of the piece is there, so that what follows it is
  // whole.
  void write(std::string_view piece);
  void sync();

 private:
  explicit AppendFile(std::filesystem::path path) : path_(std::move(path)) {}
  [[noreturn]] void stop(int error) const;

  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace plimsoll
