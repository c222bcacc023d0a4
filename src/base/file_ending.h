// Endings of file names, which tell a file's kind: in small letters, since ROWS.JSONL is a file of rows too.
#pragma once

#include <filesystem>
#include <string>

#include "base/strings.h"

namespace plimsoll {

// ".jsonl" of "a.JSONL"; "" of a name without one.
inline std::string ending_of(const std::filesystem::path& file) {
  return in_small_letters(file.extension().string());
}

// Returns whether gzip has packed the file.
inline bool is_packed(const std::filesystem::path& file) { return ending_of(file) == ".gz"; }

// "a.jsonl" of "a.jsonl.gz"; of others, their own name.
inline std::filesystem::path unpacked_name(const std::filesystem::path& file) {
  return is_packed(file) ? std::filesystem::path(file).replace_extension() : file;
}

}  // namespace plimsoll
