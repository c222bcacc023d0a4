#include "infer/score.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/units.h"
#include "cpu/threads.h"
#include "data/files/cell.h"
#include "infer/answer_file.h"
#include "infer/questions.h"
#include "infer/score_lines.h"
#include "train/run_programs.h"
#include "unicode/utf8.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

void require_head(const ModelSpec& model, const ModelPaths& paths) {
  if (model.scores_sequences || model.value_head || !model.words.empty() || paths.adapter) return;
  throw UsageError(formatted(
      "{}: is a {} without a head that scores sequences; train one with task: reward or task: classify, or compare next words with --set 'classify.words=[\" bad\", \" good\"]'",
      (paths.base / "config.json").string(), model.architecture));
}

nlohmann::ordered_json text_cell(const std::string& text) { return replace_invalid_utf8(text); }

// Batches of given texts, as a loader makes them of rows.
class TextBatches {
 public:
  TextBatches(const ScoreOptions& options, const RowsToScore& rows, int64_t batch, const SequenceShape& shape)
      : options_(options), encoder_(rows.encoder), size_(batch), batch_(batch, shape) {}

  const EffectiveBatch* next() {
    if (at_ == options_.texts.size()) return nullptr;
    batch_.clear();
    Example example;
    for (int64_t i = 0; i < size_ && at_ < options_.texts.size(); ++i, ++at_) {
      Row row(options_.partner ? 2 : 1);
      row[0].json = text_cell(options_.texts[at_]);
      if (options_.partner) row[1].json = text_cell(*options_.partner);
      encoder_.encode(
          row, [&] { return "text " + std::to_string(at_ + 1); }, example);
      batch_.add(example, static_cast<int64_t>(at_));
    }
    return &batch_;
  }

 private:
  const ScoreOptions& options_;
  const ExampleEncoder& encoder_;
  int64_t size_;
  EffectiveBatch batch_;
  size_t at_ = 0;
};

}  // namespace

RowTally score(const ScoreOptions& options, const std::function<void(const nlohmann::ordered_json&)>& line) {
  const ModelPaths paths = find_model(options.folder, options.adapter);
  const EvaluationRows requested = rows_to_score(options.wish(), options.rewards, paths);
  const InferenceDevice device = inference_device(options, paths, options.sets);
  require_apart(options.out, requested.files);
  Experiment experiment = requested.experiment;
  require_head(experiment.model, paths);
  // In 16 bits all texts that it is sure of have one score. Decoders may be too large for 32.
  if (!options.precision && experiment.model.encoder) experiment.precision.compute = DType::f32;
  const bool talks = options.rewards && answering_template(options, paths).has_value();
  RowsToScore rows = open_to_score(requested.resolved, talks, options.partner.has_value());
  experiment.task = rows.encoder.samples().task;
  auto count = static_cast<int64_t>(options.texts.size());
  if (rows.source) {
    DataSource& source = *rows.source;
    source.rows = first_rows(source.rows, source.dataset.rows(), options.limit);
    count = source.rows.size();
  }
  const RowPlan plan = fitting_rows(experiment, options, count, device, "scoring");
  options.observer->event(row_plan_line(plan, experiment));
  start_threads(device.cpu.threads);
  OutLines file(options.out);
  ScoreLines lines(
      experiment.task, requested.resolved.labels,
      [&](const nlohmann::ordered_json& one) { options.out ? file.write(one) : line(one); }, options.rewards);
  RowProgram program(plan, experiment, paths, *options.observer);
  const auto run = [&](const RowProgram::Next& next) {
    RowTally tally = program.run(next, [&](const EffectiveBatch& batch, const MicroBatch& micro) {
      lines.add(batch, micro, program.scores());
    });
    tally.device = name_of(device);
    return tally;
  };
  if (!rows.source) {
    TextBatches texts(options, rows, plan.batch(), eval_shape(experiment));
    return run([&] { return texts.next(); });
  }
  LoaderOptions loading = rows.source->loader;
  loading.effective = plan.batch();
  Loader loader(std::move(rows.source->dataset), std::move(rows.source->rows), rows.source->encoder, loading);
  loader.start({});
  return run([&] { return loader.next(); });
}

}  // namespace plimsoll
