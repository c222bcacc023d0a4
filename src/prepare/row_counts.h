// Counts how long the rows of a data set are, by reading all of them once, and keeps the result for the next
// plan of the same rows.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "data/batch/statistics.h"
#include "prepare/setup.h"

namespace plimsoll {

// A key for counts: the files with their sizes and times, the rows that are named, and what makes tokens of
// them. `part`: "train" or "eval".
std::string counted_rows_key(const Recipe& recipe, const std::string& part);

// Those kept in `folder` under the key; none where there are none, or the file is of no use.
std::optional<DataStatistics> load_row_counts(const std::filesystem::path& folder, const std::string& key);
// Whatever keeps the file from being written only means that rows are counted again.
void save_row_counts(const std::filesystem::path& folder, const std::string& key,
                     const DataStatistics& counts);

// Returns true if a run reads all rows of such data before it begins: more than 8 GiB would keep it waiting
// for minutes.
bool may_count(const Dataset& dataset);

// Measures the lengths of rows, into data's summary, lengths and loaders: counts that were kept, or of every
// row where those are few or `counting` asks for it; else of a sample. A sample gives a plan the lengths of
// rows, a run only what it has read. `full_rows`: as though any row might be as long as the recipe allows.
void measure_rows(const Recipe& recipe, const Counting& counting, bool full_rows, DataSetup& data);

}  // namespace plimsoll
