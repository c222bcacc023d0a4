#include "train/reference_log_probs.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/format.h"
#include "base/json_text.h"
#include "base/units.h"
#include "files/file.h"
#include "ops/loss/linear_log_prob.h"
#include "plan/program/reference_program.h"
#include "train/batch_writer.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();

constexpr std::string_view kSum = R"(, "crc32c": )";

std::string with_sum(std::string line) {
  const uint32_t sum = crc32c(as_bytes(line));
  return line.append(kSum).append(std::to_string(sum)).append("}");
}

std::string head_line(const std::string& fingerprint) {
  return R"({"step": 0, "experiment": )" + std::to_string(crc32c(std::as_bytes(std::span(fingerprint))));
}

}  // namespace

ReferenceLogProbs::ReferenceLogProbs(DataSetup& data) {
  give_to(Of::train, *data.train);
  if (data.eval) give_to(Of::eval, *data.eval);
}

void ReferenceLogProbs::give_to(Of of, DataSource& source) {
  const auto rows = static_cast<size_t>(source.dataset.rows());
  known_[static_cast<size_t>(of)].assign(rows, {kUnknown, kUnknown});
  source.loader.on_example = [this, of, name = source.dataset.name()](int64_t row, Example& example) {
    if (!serves_ || example.values.empty()) return;
    if (!knows(of, row))
      throw DamagedError(
          formatted("{}: row {} has no line in {} of the run: the rows changed, or the run began without it",
                    name, row, kFile));
    const Values& values = known_[static_cast<size_t>(of)][static_cast<size_t>(row)];
    example.values.assign(values.begin(), values.end());
  };
}

bool ReferenceLogProbs::knows(Of of, int64_t row) const {
  return !std::isnan(known_[static_cast<size_t>(of)][static_cast<size_t>(row)][0]);
}

bool ReferenceLogProbs::take(std::string_view line) {
  const auto json = read_json_text(line);
  if (!json.is_object()) return false;
  const size_t end = line.rfind(kSum);
  const bool is_head = json.contains("experiment");
  if (is_head) has_sums_ = end != line.npos;
  if (has_sums_ && (end == line.npos || with_sum(std::string(line.substr(0, end))) != line)) return false;
  complete_ = complete_ || json.contains("rows");
  const auto number = [&](const char* key) { return json.contains(key) && json[key].is_number(); };
  if (!number("row") || !number("chosen") || !number("rejected")) return is_head || complete_;
  auto& known = known_[json.value("data", "") == kNames[1] ? 1 : 0];
  const auto row = whole_number<int64_t>(json["row"]).value_or(-1);
  if (row >= 0 && row < std::ssize(known))
    known[static_cast<size_t>(row)] = {json["chosen"].get<float>(), json["rejected"].get<float>()};
  return true;
}

int64_t ReferenceLogProbs::take_lines(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  int64_t bytes = 0;
  for (std::string line; std::getline(in, line) && !in.eof() && take(line);)  // at the end: one cut off
    bytes += static_cast<int64_t>(line.size()) + 1;
  if (!in.is_open() || in.bad()) throw StoppedError(file.string() + ": cannot be read.");
  return bytes;
}

// The experiment of a run that resumes has been compared already, also where an earlier version named it in
// other words.
void ReferenceLogProbs::open_file(RunFolder& folder, const std::string& fingerprint, bool resumed) {
  const fs::path file = folder.begin_log(kFile);
  const std::string head = head_line(fingerprint), first = first_line(file);
  const bool same = first == with_sum(head) || first == head + "}" || (resumed && !first.empty());
  const int64_t kept = same ? take_lines(file) : 0;
  file_.emplace(file, kept);
  if (kept > 0) return;
  has_sums_ = true;
  write(head);
}

void ReferenceLogProbs::open(RunFolder& folder, const std::string& fingerprint, bool resumed,
                             RunRanks& ranks) {
  ranks.by_leader([&] {
    open_file(folder, fingerprint, resumed);
    return std::string();
  });
  if (!ranks.is_alone()) share(ranks);
}

void ReferenceLogProbs::share(RunRanks& ranks) {
  constexpr size_t kRows = 4096;
  Group& group = ranks.group();
  RunRanks::Exchange exchange(ranks);
  complete_ = broadcast_text(group, complete_ ? "1" : "0") == "1";
  exchanged_.resize(kRows * static_cast<size_t>(ranks.size()));
  for (std::vector<Values>& known : known_) {
    for (size_t first = 0; first < known.size(); first += kRows) {
      const size_t count = std::min(kRows, known.size() - first);
      const std::span<Values> all = std::span(exchanged_).first(count * static_cast<size_t>(ranks.size()));
      std::copy_n(known.data() + first, count, all.data() + count * static_cast<size_t>(group.rank()));
      group.all_gather(std::as_writable_bytes(all));
      std::copy_n(all.data(), count, known.data() + first);
    }
  }
  exchange.done();
}

void ReferenceLogProbs::read(const fs::path& folder) {
  const fs::path file = folder / kFile;
  if (is_absent(file))
    throw UsageError(
        formatted("{}: has no {}, which records the reference model of task: dpo", folder.string(), kFile));
  const int64_t bytes = take_lines(file);
  if (bytes != static_cast<int64_t>(fs::file_size(file)))
    throw DamagedError(formatted("{}: is damaged after byte {}; train --resume recomputes these rows",
                                 file.string(), format_count(bytes)));
}

void ReferenceLogProbs::write(std::string line) {
  if (!file_) return;  // the leading rank's
  line = has_sums_ ? with_sum(std::move(line)) : line.append("}");
  file_->write(line.append("\n"));
}

void ReferenceLogProbs::add(Of of, int64_t row, const Values& values) {
  std::array<char, 128> line{};
  const int length = std::snprintf(
      line.data(), line.size(), R"({"step": 0, "data": "%s", "row": %lld, "chosen": %.9g, "rejected": %.9g)",
      kNames[static_cast<size_t>(of)], static_cast<long long>(row), static_cast<double>(values[0]),
      static_cast<double>(values[1]));
  write({line.data(), static_cast<size_t>(length)});
  known_[static_cast<size_t>(of)][static_cast<size_t>(row)] = values;
}

// A run that resumes may evaluate where it did not before.
bool ReferenceLogProbs::are_complete() const {
  const auto any = [&](const std::vector<Values>& rows) {
    return rows.empty() ||
           std::any_of(rows.begin(), rows.end(), [](const Values& row) { return !std::isnan(row[0]); });
  };
  return complete_ && std::all_of(known_.begin(), known_.end(), any);
}

void ReferenceLogProbs::complete(RunRanks& ranks) {
  ranks.by_leader([&] {
    int64_t rows = 0;
    for (const Of of : {Of::train, Of::eval})
      for (int64_t row = 0; row < std::ssize(known_[static_cast<size_t>(of)]); ++row) rows += knows(of, row);
    write(R"({"step": 0, "rows": )" + std::to_string(rows));
    file_->sync();
    return std::string();
  });
  complete_ = true;
}

bool ReferenceLogProbs::exchange(Of of, const EffectiveBatch& batch, RunRanks& ranks, bool interrupted) {
  RankWord word;
  word.stops = interrupted ? 1 : 0;
  if (ranks.meet(word).stops != 0) return false;
  const auto count = static_cast<size_t>(batch.sequences());
  const auto place_of = [&](int rank, size_t sequence) {
    return static_cast<size_t>(rank) * count + sequence;
  };
  exchanged_.resize(count * static_cast<size_t>(ranks.size()));
  const auto known = [&](size_t sequence) -> Values& {
    return known_[static_cast<size_t>(of)][static_cast<size_t>(batch.row(static_cast<int64_t>(sequence)))];
  };
  for (size_t sequence = 0; sequence < count; ++sequence)
    exchanged_[place_of(ranks.group().rank(), sequence)] = known(sequence);
  RunRanks::Exchange exchange(ranks);
  ranks.group().all_gather(std::as_writable_bytes(std::span(exchanged_)));
  exchange.done();
  for (int rank = 0; rank < ranks.size(); ++rank)
    for (size_t sequence = 0; sequence < count; ++sequence) {
      const Values& values = exchanged_[place_of(rank, sequence)];
      if (std::isnan(known(sequence)[0]) && !std::isnan(values[0]))
        add(of, batch.row(static_cast<int64_t>(sequence)), values);
    }
  return true;
}

bool ReferenceLogProbs::compute(Of of, const RunPlace& place, Loader& loader,
                                const std::function<bool()>& interrupted,
                                const std::function<void()>& begin) {
  const Experiment& experiment = place.plan.request.workload.experiment;
  GatheringProgram program(place, kReferenceProgram);
  BatchWriter writer(program.executor(), experiment.model);
  MicroSteps steps(experiment.train_capacity(place.plan.variant), train_shape(experiment),
                   loader.most_sequences(), place.rank());
  RunRanks& ranks = place.ranks;
  bool begun = false;
  const auto begin_once = [&] {
    if (!std::exchange(begun, true)) begin();
  };
  if (!ranks.is_alone()) ranks.together(begin_once);
  loader.start({});
  while (const EffectiveBatch* batch = loader.next()) {
    steps.cut(*batch);
    auto gathering = program.begin();
    const bool done = compute_batch(of, {program, writer, steps}, *batch, interrupted, begin_once);
    if (gathering) gathering->done();
    if (ranks.is_alone() ? !done : !exchange(of, *batch, ranks, !done)) return false;
    if (batch->ends_epoch) break;
  }
  return true;
}

bool ReferenceLogProbs::compute_batch(Of of, const Computing& by, const EffectiveBatch& batch,
                                      const std::function<bool()>& interrupted,
                                      const std::function<void()>& begin) {
  const auto& [program, writer, steps] = by;
  const std::vector<int64_t> unknown = unknown_of(of, steps, batch);
  const int64_t rounds = program.rounds(std::ssize(unknown));
  for (int64_t i = 0; i < rounds; ++i) {
    if (!program.gathers() && interrupted()) return false;
    const bool is_own = i < std::ssize(unknown);
    const MicroBatch& micro =
        is_own ? steps.fill(unknown[static_cast<size_t>(i)]) : steps.fill_with(batch, 0);
    const auto row_of = [&](int64_t sequence) {
      return batch.row(micro.sample_in_batch[static_cast<size_t>(sequence)]);
    };
    begin();
    writer.write(micro);
    program.executor().run();
    if (!is_own) continue;  // for others, which gather weights
    const auto logps = program.executor().result<float>(kReferenceTensor);
    const auto answer = [&](int64_t sequence) { return logps[static_cast<size_t>(sequence * kNumLogProbs)]; };
    for (int64_t s = 0; s < micro.live_sequences; s += 2)
      if (!knows(of, row_of(s))) add(of, row_of(s), {answer(s), answer(s + 1)});
  }
  return !program.gathers() || !interrupted();
}

std::vector<int64_t> ReferenceLogProbs::unknown_of(Of of, MicroSteps& steps,
                                                   const EffectiveBatch& batch) const {
  std::vector<int64_t> unknown;
  for (int64_t i = 0; i < steps.count(); ++i) {
    const MicroBatch& micro = steps.fill(i);
    bool all_known = true;
    for (int64_t s = 0; s < micro.live_sequences; s += 2)
      all_known = all_known && knows(of, batch.row(micro.sample_in_batch[static_cast<size_t>(s)]));
    if (!all_known) unknown.push_back(i);
  }
  return unknown;
}

std::unique_ptr<ReferenceLogProbs> reference_log_probs_for(const Experiment& experiment, DataSetup& data) {
  if (experiment.task.preference.reference != Preference::Reference::given) return nullptr;
  return std::make_unique<ReferenceLogProbs>(data);
}

}  // namespace plimsoll
