#include "train/references.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/json_text.h"
#include "io/file.h"
#include "ops/linear_log_prob.h"
#include "plan/reference_program.h"
#include "train/batch_writer.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();

std::string head_line(const std::string& fingerprint) {
  return R"({"step": 0, "experiment": )" + std::to_string(crc32c(std::as_bytes(std::span(fingerprint)))) +
         "}";
}

}  // namespace

References::References(DataSetup& data) {
  give_to(Of::train, *data.train);
  if (data.eval) give_to(Of::eval, *data.eval);
}

void References::give_to(Of of, DataSource& source) {
  const auto rows = static_cast<size_t>(source.dataset.rows());
  known_[static_cast<size_t>(of)].assign(rows, {kUnknown, kUnknown});
  source.loader.on_example = [this, of, name = source.dataset.name()](int64_t row, Example& example) {
    if (!serves_ || example.values.empty()) return;
    if (!knows(of, row))
      throw DamagedError(name + ": row " + std::to_string(row) + " has no line in " + kFile +
                         " of the run: the rows changed, or the run began without it");
    const Values& values = known_[static_cast<size_t>(of)][static_cast<size_t>(row)];
    example.values.assign(values.begin(), values.end());
  };
}

bool References::knows(Of of, int64_t row) const {
  return !std::isnan(known_[static_cast<size_t>(of)][static_cast<size_t>(row)][0]);
}

void References::take(const nlohmann::json& line) {
  const auto number = [&](const char* key) { return line.contains(key) && line[key].is_number(); };
  if (!number("row") || !number("chosen") || !number("rejected")) return;
  auto& known = known_[line.value("data", "") == kNames[1] ? 1 : 0];
  const auto row = line["row"].get<int64_t>();
  if (row >= 0 && row < std::ssize(known))
    known[static_cast<size_t>(row)] = {line["chosen"].get<float>(), line["rejected"].get<float>()};
}

void References::open(RunFolder& folder, const std::string& fingerprint, bool resumed) {
  const fs::path file = folder.begin_log(kFile);
  const std::string head = head_line(fingerprint);
  const bool same = resumed || first_line(file) == head;
  log_.emplace(file, same ? 0 : -1, [this](const nlohmann::json& line) { take(line); });
  if (!same) log_->write(head);
}

void References::read(const fs::path& folder) {
  const fs::path file = folder / kFile;
  std::ifstream in(file, std::ios::binary);
  if (!in)
    throw UsageError(folder.string() + ": has no " + kFile +
                     ", which says what the model was that task: dpo compares with");
  for (std::string line; std::getline(in, line);) {
    const auto json = read_json_text(line);
    if (json.is_object()) take(json);
  }
}

void References::add(Of of, int64_t row, const Values& values) {
  std::array<char, 128> line{};
  const int length = std::snprintf(
      line.data(), line.size(), R"({"step": 0, "data": "%s", "row": %lld, "chosen": %.9g, "rejected": %.9g})",
      kNames[static_cast<size_t>(of)], static_cast<long long>(row), static_cast<double>(values[0]),
      static_cast<double>(values[1]));
  log_->write({line.data(), static_cast<size_t>(length)});
  known_[static_cast<size_t>(of)][static_cast<size_t>(row)] = values;
}

bool References::compute(Of of, const RunPlace& place, Loader& loader,
                         const std::function<bool()>& interrupted) {
  const Experiment& experiment = place.plan.request.experiment;
  const Executor program = bind_program(place, kReferenceProgram);
  BatchWriter writer(program, experiment.model);
  const Variant& variant = place.plan.variant;
  MicroSteps steps(experiment.train_room(variant), train_shape(experiment),
                   std::max(experiment.effective_batch, variant.eval_micro_batch));
  loader.start({});
  while (const EffectiveBatch* batch = loader.next()) {
    steps.cut(*batch);
    for (int64_t i = 0; i < steps.count(); ++i) {
      if (interrupted()) return false;
      const MicroBatch& micro = steps.fill(i);
      const auto row_of = [&](const EffectiveBatch& of, int64_t sequence) {
        return of.row(micro.sample_in_batch[static_cast<size_t>(sequence)]);
      };
      bool all_known = true;
      for (int64_t s = 0; s < micro.live_sequences; s += 2)
        all_known = all_known && knows(of, row_of(*batch, s));
      if (all_known) continue;
      writer.write(micro);
      program.run();
      const auto logps = program.result<float>(kReferenceTensor);
      const auto answer = [&](int64_t sequence) {
        return logps[static_cast<size_t>(sequence * kNumLogProbs)];
      };
      for (int64_t s = 0; s < micro.live_sequences; s += 2)
        if (!knows(of, row_of(*batch, s))) add(of, row_of(*batch, s), {answer(s), answer(s + 1)});
    }
    if (batch->ends_epoch) break;
  }
  return true;
}

std::unique_ptr<References> references_for(const Experiment& experiment, DataSetup& data) {
  if (experiment.task.preference.reference != Preference::Reference::given) return nullptr;
  return std::make_unique<References>(data);
}

}  // namespace plimsoll
