#include "runs/stopped_batch.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "base/format.h"

namespace plimsoll {
namespace {

std::vector<int32_t> copied(std::span<const int32_t> values) { return {values.begin(), values.end()}; }

}  // namespace

std::filesystem::path save_stopped_batch(const EffectiveBatch& batch, RunFolder& output, int64_t step) {
  std::string lines;
  for (int64_t i = 0; i < batch.sequences(); ++i) {
    const nlohmann::ordered_json line = {
        {"row", batch.row(i)}, {"input_ids", copied(batch.ids(i))}, {"labels", copied(batch.labels(i))}};
    lines += line.dump() + "\n";
  }
  const std::string name = formatted("stopped-at-step-{}.jsonl", step);
  output.write(name, lines);
  return output.path() / name;
}

std::string stopped_batch_words(const EffectiveBatch& batch, RunFolder& output, int64_t step) {
  try {
    return "the step's rows: " + save_stopped_batch(batch, output, step).string();
  } catch (const std::exception& error) {
    return std::string("the step's rows could not be saved: ") + error.what();
  }
}

}  // namespace plimsoll
