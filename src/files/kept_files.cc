#include "files/kept_files.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "base/units.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostKeptBytes = 512 * kMiB;  // as many as are read of a tokenizer
constexpr int64_t kCopiedPiece = 64 * 1024;

void copy(const File& from, int64_t from_start, File& to, int64_t to_start, int64_t bytes) {
  std::vector<std::byte> piece(static_cast<size_t>(std::min(kCopiedPiece, bytes)));
  for (int64_t at = 0; at < bytes; at += kCopiedPiece) {
    const auto part = std::span(piece).first(static_cast<size_t>(std::min(kCopiedPiece, bytes - at)));
    from.read(from_start + at, part);
    to.write(to_start + at, part);
  }
}

File create_nameless(const fs::path& temporary) {
  fs::remove(temporary);
  File file = File::create(temporary);
  fs::remove(temporary);
  return file;
}

}  // namespace

KeptFiles::KeptFiles(const fs::path& folder, const std::vector<std::string>& names, const fs::path& temporary)
    : copies_(create_nameless(temporary)) {
  int64_t end = 0;
  for (const std::string& name : names) {
    const File file = File::open(folder / name);
    const int64_t bytes = file.size();
    if (bytes > kMostKeptBytes)
      throw UsageError(formatted("{}: is {} long, at most {} are copied into a checkpoint.",
                                 file.path().string(), format_bytes(bytes), format_bytes(kMostKeptBytes)));
    copy(file, 0, copies_, end, bytes);
    places_[name] = {end, bytes};
    end += bytes;
  }
}

std::vector<std::string> KeptFiles::names() const {
  std::vector<std::string> names;
  for (const auto& [name, place] : places_) names.push_back(name);
  return names;
}

int64_t KeptFiles::bytes() const {
  int64_t bytes = 0;
  for (const auto& [name, place] : places_) bytes += place.bytes;
  return bytes;
}

void KeptFiles::write(const std::string& name, const fs::path& to) const {
  const Place& place = places_.at(name);
  File file = File::create(to);
  copy(copies_, place.start, file, 0, place.bytes);
}

}  // namespace plimsoll
