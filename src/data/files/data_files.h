// Finds the files that a path of the recipe means.
#pragma once

#include <filesystem>
#include <vector>

#include "data/files/data_file.h"

namespace plimsoll {

// The file itself; what a pattern with *, ? or [...] matches, by name; a folder's data files by name, or
// those that its state.json lists where Hugging Face's `datasets` saved it. Throws UsageError for what is
// absent, of another format, or a set of splits.
std::vector<std::filesystem::path> data_files(const std::filesystem::path& path);

// Returns true if a file of this name holds rows; .json may be anything else.
bool is_data_file(const std::filesystem::path& path);

// Opens a file by its name's end.
std::unique_ptr<DataFile> open_data_file(const std::filesystem::path& path, CappedMemoryPool& pool,
                                         RowErrors on_error, const TabText& tabs = {},
                                         int64_t most_rows = kAllRows);

// Returns true if Arrow reads the file.
bool is_arrow_format(const std::filesystem::path& path);

}  // namespace plimsoll
