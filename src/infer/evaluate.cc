#include "infer/evaluate.h"

#include <algorithm>
#include <cmath>

#include "base/printable.h"
#include "base/strings.h"
#include "base/units.h"
#include "cpu/threads.h"
#include "data/encode/conversations.h"
#include "infer/answer_file.h"
#include "infer/score_lines.h"
#include "prepare/task_setup.h"
#include "recipe/load/load.h"
#include "runs/agreement.h"
#include "train/references.h"
#include "train/run_programs.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

// What is evaluated on what, as a recipe says it: the run's own, or the defaults for a model folder.
Recipe recipe_of_evaluation(EvalOptions options, const ModelPaths& paths) {
  if (options.chat_template != "auto")
    options.sets.push_back(assignment("data.template", options.chat_template));
  if (!options.data && !fs::exists(own_recipe(options)))
    throw UsageError(options.folder.string() +
                     ": is no run with evaluation data of its own; name some with --data");
  std::vector<std::string> of_model;
  if (options.data) of_model.push_back(assignment("data.train", options.data->string()));
  Recipe recipe = recipe_of_rows(options, paths, of_model);
  if (options.data) {
    recipe.data.train = {{options.data->string()}};
    recipe.data.eval = {.kind = EvalSource::Kind::path, .path = options.data->string()};
  } else if (recipe.data.eval.kind == EvalSource::Kind::none) {
    throw UsageError(own_recipe(options).string() +
                     ": the run had no evaluation data (data.eval); name some with --data");
  }
  return recipe;
}

// The rows as the run read its own. A file named by --data may be of another format: then as its columns say.
DataSetup open_rows(Recipe& recipe, const EvalOptions& options, const ModelSpec& model) {
  const auto says = [](const std::string& set) {
    return set.starts_with("data.format") || set.starts_with("data.columns");
  };
  const bool stated = std::any_of(options.sets.begin(), options.sets.end(), says);
  if (!options.data || stated) return open_data(recipe, model);
  try {
    return open_data(recipe, model);
  } catch (const UsageError&) {
    Recipe::Data& data = recipe.data;
    if (!data.format && data.columns.empty()) throw;
    data.format.reset();
    data.columns.clear();
  }
  DataSetup data = open_data(recipe, model);
  options.observer->event("note    " + printable(options.data->string()) + ": read as " +
                          std::string(to_string(data.eval->encoder.options().format)) +
                          "; the run read its own rows otherwise");
  return data;
}

// Runs the program over all rows.
LossResult run_loss(RowProgram program, const TaskSpec& task, DataSource& source, RowSubset rows,
                    int64_t batch, ScoreLines* file) {
  LoaderOptions loading = source.loader;
  loading.effective = batch;
  const int64_t all = rows.size();
  Loader loader(std::move(source.dataset), std::move(rows), source.encoder, loading);
  loader.start({});
  Agreement agreement(task);
  LossResult result;
  static_cast<RowTally&>(result) = program.run([&] { return loader.next(); },
                                               [&](const EffectiveBatch& rows_of, const MicroBatch& micro) {
                                                 if (task.task == Task::classify)
                                                   agreement.add(program.scores(), micro);
                                                 if (file != nullptr)
                                                   file->add(rows_of, micro, program.scores());
                                               });
  check_internal(result.rows + result.skipped + result.damaged == all, "an evaluation lost rows");
  if (result.rows == 0) return result;
  const auto sums = program.sums();
  result.target_tokens = static_cast<int64_t>(sums[1]);
  result.loss = sums[1] > 0 ? sums[0] / sums[1] : 0;
  result.metrics = metrics_of(task, sums);
  const Metrics of_all_rows = agreement.metrics();
  for (const Metric& metric : of_all_rows) result.metrics.add(metric);
  return result;
}

// --generate and --out are for tasks that have them.
void require_answers(const EvalOptions& options, Task task) {
  const bool scores = rule_of(task).scores;
  if (options.generate && scores)
    throw UsageError("eval: --generate asks for answers, and the model scores sequences (task: " +
                     std::string(to_string(task)) + ")");
  if (options.generate && rule_of(task).pairs)
    throw UsageError(
        "eval: --generate asks for answers to prompts, and the rows are pairs of answers (task: " +
        std::string(to_string(task)) + ")");
  if (options.out && !options.generate && !scores)
    throw UsageError("eval: --out keeps the answers of --generate, or scores");
}

}  // namespace

double LossResult::perplexity() const { return std::exp(loss); }

Evaluation evaluate(const EvalOptions& options) {
  const ModelPaths paths = find_model(options.folder, options.adapter);
  Recipe recipe = recipe_of_evaluation(options, paths);
  const AskedDevice device = asked_device(options, paths, options.sets);
  std::vector<fs::path> read = {options.folder, paths.base};
  for (const TrainSource& source : recipe.data.train) read.emplace_back(source.path);
  if (recipe.data.eval.kind == EvalSource::Kind::path) read.emplace_back(recipe.data.eval.path);
  require_apart(options.out, read);
  const Experiment experiment = experiment_of_rows(options, paths, recipe);
  const bool scores = rule_of(experiment.task.task).scores;
  require_answers(options, experiment.task.task);
  DataSetup data = open_rows(recipe, options, experiment.model);
  const std::unique_ptr<References> references = references_for(experiment, data);
  if (references != nullptr) {
    references->read(options.folder);
    references->serve();
  }
  const RowSubset rows = first_rows(data.eval->rows, data.eval->dataset.rows(), options.limit);
  std::vector<Question> questions;
  if (options.generate) {
    if (!data.tokenizer)
      throw UsageError(recipe.model + ": has no tokenizer.json or tokenizer.model, which --generate needs");
    questions = read_questions(*data.eval, rows, options, *data.tokenizer, data.chat ? &*data.chat : nullptr);
  }
  const RowPlan plan = fitting_rows(experiment, options, rows.size(), device, "evaluation");
  options.observer->event(row_plan_line(plan, experiment));
  start_threads(device.cpu.threads);
  Evaluation result;
  result.device = name_of(device);
  std::optional<OutLines> lines;
  std::optional<ScoreLines> file;
  if (scores && options.out) {
    lines.emplace(*options.out);
    file.emplace(experiment.task, label_names(recipe), [&](const auto& line) { lines->write(line); });
  }
  result.loss = run_loss({plan, experiment, paths, *options.observer}, experiment.task, *data.eval, rows,
                         plan.batch(), file ? &*file : nullptr);
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
    Answerer answerer(answering, paths, device, &*data.tokenizer, data.chat ? &*data.chat : nullptr,
                      static_cast<int64_t>(longest));
    result.answers = answer_all(answerer, questions, options.out, *options.observer);
  }
  return result;
}

}  // namespace plimsoll
