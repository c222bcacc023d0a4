// Names of texts that gzip has packed.
#pragma once

#include <filesystem>

namespace plimsoll {

inline bool is_packed(const std::filesystem::path& file) { return file.extension() == ".gz"; }

// "a.jsonl" of "a.jsonl.gz"; of others, their own name.
inline std::filesystem::path unpacked_name(const std::filesystem::path& file) {
  return is_packed(file) ? std::filesystem::path(file).replace_extension() : file;
}

}  // namespace plimsoll
