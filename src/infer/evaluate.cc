#include "infer/evaluate.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/format.h"
#include "cpu/threads.h"
#include "infer/answer_file.h"
#include "infer/score_lines.h"
#include "runs/evaluated_rows.h"
#include "train/reference_log_probs.h"
#include "train/run_programs.h"

namespace plimsoll {
namespace {

// Runs the program over all rows.
LossResult run_loss(RowProgram program, const TaskSpec& task, DataSource& source, RowSubset rows,
                    int64_t batch, ScoreLines* file, bool each_row) {
  LoaderOptions loading = source.loader;
  loading.effective = batch;
  const int64_t all = rows.size();
  Loader loader(std::move(source.dataset), std::move(rows), source.encoder, loading);
  loader.start({});
  EvaluatedRows metrics(task);
  LossResult result;
  RowLoss before;
  const auto add_row = [&] {
    const auto sums = program.sums();
    result.each.push_back({sums[0] - before.sum, sums[1] - before.count});
    before = {sums[0], sums[1]};
  };
  static_cast<RowTally&>(result) = program.run([&] { return loader.next(); },
                                               [&](const EffectiveBatch& rows_of, const MicroBatch& micro) {
                                                 if (metrics.needs_scores())
                                                   metrics.add(program.scores(), micro);
                                                 if (file != nullptr)
                                                   file->add(rows_of, micro, program.scores());
                                                 if (each_row) add_row();
                                               });
  check_internal(loading.joined || result.rows + result.skipped + result.damaged == all,
                 "an evaluation lost rows");
  if (result.rows == 0) return result;
  const auto sums = program.sums();
  result.target_tokens = static_cast<int64_t>(sums[1]);
  result.loss = sums[1] > 0 ? sums[0] / sums[1] : 0;
  result.metrics = metrics.of(sums);
  return result;
}

// --generate and --out are for tasks that have them.
void require_answers(const EvalOptions& options, Task task) {
  const bool scores = rule_of(task).scores;
  if (options.generate && scores)
    throw UsageError(
        formatted("eval: --generate needs a model that generates text; this one scores sequences (task: {})",
                  to_string(task)));
  if (options.generate && rule_of(task).pairs)
    throw UsageError(formatted(
        "eval: --generate needs rows with a prompt; these are pairs of answers (task: {})", to_string(task)));
  if (options.out && !options.generate && !scores)
    throw UsageError("eval: --out writes answers (--generate) or scores; there are neither");
  if (options.thinking && !options.generate)
    throw UsageError("eval: --thinking is for the answers of --generate; add --generate, or leave it out");
}

// The rows as prompts to answer, by `chat` if there is one; the data have a tokenizer.
std::vector<Question> questions_of(const EvalOptions& options, const EvaluationRows& requested,
                                   DataSetup& data, const RowSubset& rows, const ModelPaths& paths,
                                   const ChatTemplate* chat) {
  Asking asking{.tokenizer = &*data.tokenizer, .chat = chat};
  asking.ends = end_tokens_of(paths.base, asking.tokenizer, chat, *options.sources->models);
  if (rule_of(requested.experiment.task.task).has_targets)
    asking.end_of_source = data.special.end_of_text.value_or(0);
  asking.cut = {requested.resolved.recipe.data.max_length, requested.resolved.recipe.data.truncation};
  return read_questions(*data.eval, rows, options, asking);
}

}  // namespace

double LossResult::perplexity() const { return std::exp(loss); }

Evaluation evaluate(const EvalOptions& options) {
  const ModelPaths own = find_model(options.folder, options.adapter);
  const ModelPaths paths = options.weights ? find_model(*options.weights, std::nullopt) : own;
  EvaluationRows requested = rows_to_evaluate(options.wish(), options.chat_template, paths);
  const InferenceDevice device = inference_device(options, own, options.sets);
  require_apart(options.out, requested.files);
  const Experiment& experiment = requested.experiment;
  const bool scores = rule_of(experiment.task.task).scores;
  require_answers(options, experiment.task.task);
  DataSetup data = open_evaluation(requested, options.wish(), *options.observer);
  const std::unique_ptr<ReferenceLogProbs> reference_log_probs = reference_log_probs_for(experiment, data);
  if (reference_log_probs != nullptr) {
    reference_log_probs->read(options.folder);
    reference_log_probs->serve();
  }
  const RowSubset rows = first_rows(data.eval->rows, data.eval->dataset.rows(), options.limit);
  std::vector<Question> questions;
  std::optional<ChatTemplate> chat = data.chat;  // of the answers
  if (options.generate) {
    set_thinking(options, chat);
    if (!data.tokenizer)
      throw UsageError(paths.base.string() +
                       ": has no tokenizer.json or tokenizer.model, which --generate needs");
    questions = questions_of(options, requested, data, rows, paths, chat ? &*chat : nullptr);
  }
  RowOptions at_a_time = options;
  if (options.each_row) at_a_time.batch = 1;
  const RowPlan plan = fitting_rows(experiment, at_a_time, rows.size(), device, "evaluation");
  options.observer->event(row_plan_line(plan, experiment));
  start_threads(device.cpu.threads);
  Evaluation result;
  result.device = name_of(device);
  std::optional<OutLines> lines;
  std::optional<ScoreLines> file;
  if (scores && options.out) {
    lines.emplace(*options.out);
    file.emplace(experiment.task, requested.resolved.labels, [&](const auto& line) { lines->write(line); });
  }
  result.loss = run_loss({plan, experiment, paths, *options.observer}, experiment.task, *data.eval, rows,
                         plan.batch(), file ? &*file : nullptr, options.each_row);
  if (!std::isfinite(result.loss.loss))
    throw StoppedError(paths.base.string() +
                       ": the loss is not finite: its weights are damaged, or --precision fp32 is needed");
  if (result.loss.target_tokens == 0)
    throw UsageError(data.eval->dataset.name() +
                     (scores ? ": no row can be scored" : ": no row has a target token"));
  result.loss.unit = rule_of(experiment.task.task).unit;
  if (options.generate) {
    size_t longest = 0;
    for (const Question& question : questions) longest = std::max(longest, question.ids.size());
    AnswerOptions answering = options;
    answering.precision = experiment.precision.compute;
    Answerer answerer(answering, paths, device, &*data.tokenizer, chat ? &*chat : nullptr,
                      static_cast<int64_t>(longest));
    result.answers = answer_all(answerer, questions, options.out, *options.observer);
  }
  return result;
}

}  // namespace plimsoll
