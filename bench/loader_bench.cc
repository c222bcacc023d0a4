// The loader alone: how long its first batch takes, how many tokens a second it prepares after that, and what
// memory and disk it took beside what was planned.
//   loader_bench FILE COLUMN TOKENIZER_FOLDER SCRATCH_FOLDER full|window STEPS
// Rows of one text are cut to 1,024 tokens, 16 a step; one line of JSON is printed.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "base/system_memory.h"
#include "data/batch/loader.h"
#include "data/rows/row_access.h"
#include "tokenizer/tokenizer.h"

namespace plimsoll {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

ExampleEncoder encoder_of(const std::string& folder) {
  const auto tokenizer =
      std::make_shared<const Tokenizer>(Tokenizer::from_file(*Tokenizer::find_file(folder)));
  RowEncoding rows{.columns = {.format = RowFormat::text}, .samples = {.max_length = 1024}};
  rows.texts.tokenize = [tokenizer](std::string_view text, std::vector<int32_t>& ids) {
    tokenizer->encode_into(text, false, ids);
  };
  return ExampleEncoder(rows);
}

int run(const char* const* words) {
  const std::string file = words[0], column = words[1], folder = words[3], order = words[4];
  ExampleEncoder encoder = encoder_of(words[2]);
  const int64_t before = resident_bytes();
  const auto start = Clock::now();
  Dataset dataset = Dataset::open(std::vector<std::filesystem::path>{file});
  dataset.select(std::vector<std::string>{column});
  const double opened = since(start);
  const LoaderOptions options{.effective = 16,
                              .order = {.shuffle = order == "full" ? Shuffle::full : Shuffle::window}};
  const RowSubset rows = RowSubset::all(dataset.rows());
  const RowAccess access = plan_access(dataset, options.order);
  dataset.measure_store();
  const RowAccess planned = plan_access(dataset, options.order);
  const LoaderMemory memory = plan_loader_memory(dataset, rows, encoder.samples(), options);
  const auto units = static_cast<int64_t>(dataset.units().size());
  const int64_t index_bytes = dataset.index_bytes();
  Loader loader(std::move(dataset), rows, std::move(encoder), options);
  const auto storing = Clock::now();
  loader.store_rows(folder, {});
  const double stored = since(storing);
  loader.start({});
  loader.next();
  const double first = since(start);
  const auto steady = Clock::now();
  int64_t tokens = 0, steps = 0;
  const int64_t wanted = std::atoll(words[5]);
  for (; steps < wanted && since(steady) < 60; ++steps) tokens += loader.next()->tokens();
  const double seconds = since(steady);
  std::printf("%s\n",
              nlohmann::ordered_json{{"shuffle", order},
                                     {"rows_read", to_string(planned.kind)},
                                     {"rows", loader.rows()},
                                     {"units", units},
                                     {"open_seconds", opened},
                                     {"store_seconds", stored},
                                     {"planned_store_seconds", planned.store_seconds},
                                     {"first_batch_seconds", first},
                                     {"steps", steps},
                                     {"tokens_per_second", static_cast<double>(tokens) / seconds},
                                     {"milliseconds_a_row", seconds * 1e3 / static_cast<double>(steps * 16)},
                                     {"planned_milliseconds_a_row", planned.row_seconds * 1e3},
                                     {"planned_loader_bytes", memory.resident_bytes() + index_bytes},
                                     {"measured_loader_bytes", process_memory().peak_rss - before},
                                     {"scratch_known_by_footer", access.exact},
                                     {"planned_scratch_bytes", planned.store_bytes},
                                     {"measured_scratch_bytes", loader.stored_bytes()}}
                  .dump()
                  .c_str());
  return 0;
}

}  // namespace
}  // namespace plimsoll

int main(int count, char** words) {
  if (count != 7) {
    std::fprintf(stderr, "loader_bench FILE COLUMN TOKENIZER_FOLDER SCRATCH_FOLDER full|window STEPS\n");
    return 2;
  }
  try {
    return plimsoll::run(words + 1);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
