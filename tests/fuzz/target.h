// Helpers that fuzz targets share. A target takes any bytes; refusing them with an Error is what it is for.
// Whatever else happens ends the program: another exception, an InternalError, a sanitizer's report.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"

// The name that libFuzzer calls, and tests/fuzz/driver.cc.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace plimsoll {

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// The texts before the first such character and behind it.
inline std::pair<std::string_view, std::string_view> parted(std::string_view text, char at) {
  const size_t end = std::min(text.find(at), text.size());
  return {text.substr(0, end), text.substr(std::min(end + 1, text.size()))};
}

// Returns true if the call went through; an Error that is not our own fault is swallowed.
template <class Call>
bool accepted(Call&& call) {
  try {
    call();
    return true;
  } catch (const InternalError&) {
    throw;
  } catch (const Error&) {
    return false;
  }
}

// A file without a place on the disk, for what reads files by their names.
class FuzzFile {
 public:
  FuzzFile();
  FuzzFile(const FuzzFile&) = delete;
  FuzzFile& operator=(const FuzzFile&) = delete;
  ~FuzzFile();

  // Replaces the content; returns the file's name.
  const std::string& holding(std::string_view content);

 private:
  int descriptor_ = -1;
  std::string path_;
};

// A folder for what reads files by their folder's name; gone with the process.
class FuzzFolder {
 public:
  FuzzFolder();
  FuzzFolder(const FuzzFolder&) = delete;
  FuzzFolder& operator=(const FuzzFolder&) = delete;
  ~FuzzFolder();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  // Replaces the file's content; returns its path.
  std::filesystem::path write(const std::string& name, std::string_view content) const;
  void clear() const;

 private:
  std::filesystem::path path_;
};

}  // namespace plimsoll
