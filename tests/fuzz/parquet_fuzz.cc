// Rows of a Parquet file: its first rows are read as prompts and responses, as the format that its columns
// suggest, and all its columns as JSON.
#include <algorithm>
#include <map>

#include "base/units.h"
#include "data/files/cell.h"
#include "data/files/memory_pool.h"
#include "data/rows/columns.h"
#include "fuzz/target.h"

using namespace plimsoll;

namespace {

constexpr int64_t kRows = 64;

void read_rows(DataFile& file, std::span<const std::string> columns, ReadAs as) {
  const std::vector<Unit> units = file.select(columns, as);
  Row cells(columns.size());
  for (size_t unit = 0; unit < std::min<size_t>(units.size(), 4); ++unit) {
    const auto block = file.load(unit);
    for (int64_t row = 0; row < std::min(units[unit].rows, kRows); ++row)
      accepted([&] { block->read(row, cells); });
  }
}

void read_bound(DataFile& file, std::optional<RowFormat> format,
                const std::map<std::string, std::string>& names) {
  const ColumnBinding binding = bind_columns(file.columns(), format, names, "fuzz.parquet");
  read_rows(file, binding.columns, binding.read_as());
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static FuzzFile holder;
  const std::string& path = holder.holding(text_of(data, size));
  CappedMemoryPool pool(64 * kMiB);
  std::unique_ptr<DataFile> file;
  if (!accepted([&] { file = open_parquet(path, pool); })) return 0;
  accepted([&] {
    read_bound(*file, RowFormat::prompt_response, {{"prompt", "question"}, {"response", "answer"}});
  });
  accepted([&] { read_bound(*file, std::nullopt, {}); });
  accepted([&] {
    std::vector<std::string> names;
    for (const Column& column : file->columns()) names.push_back(column.name);
    read_rows(*file, names, ReadAs::json);
  });
  return 0;
}
