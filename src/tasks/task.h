// A task of training: the sequences of a sample, the head and the loss over them, and the metrics of its
// sums. One file per task; tasks.def lists them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "models/model.h"
#include "ops/loss/preference_loss.h"
#include "ops/loss/sequence_loss.h"
#include "tasks/rows.h"

namespace plimsoll {

enum class Task : uint8_t {
#define TASK(name, meaning) name,
#include "tasks/tasks.def"
#undef TASK
};

// Options of dpo.
struct Preference {
  PreferenceLoss loss = PreferenceLoss::sigmoid;
  double beta = 0.1;
  double label_smoothing = 0;
  double nll = 0;  // times the mean negative log-likelihood of the chosen answer, added to the loss
  // The source of the log-probabilities of the model that the run began with.
  enum class Reference : uint8_t { none, computed, given } reference = Reference::none;
};

// A task with its settings from the recipe and the model.
struct TaskSpec {
  Task task = Task::sft;
  int64_t outputs = 1;                          // scores of a sequence
  ClassProblem problem = ClassProblem::one_of;  // of classify
  double centering = 0;                         // of reward
  Preference preference = {};
};

// A figure of a step or an evaluation, in addition to its loss.
struct Metric {
  std::string_view name;
  double value = 0;
};
// A few of them; steps of a run allocate nothing.
struct Metrics {
  std::array<Metric, 9> all;
  size_t count = 0;
  void add(const Metric& metric) { all.at(count++) = metric; }
  [[nodiscard]] const Metric* begin() const { return all.data(); }
  [[nodiscard]] const Metric* end() const { return all.data() + count; }
};

// The inputs from which the forward graph of a task is built.
struct LossRequest {
  const TaskSpec& task;
  const ModelSpec& model;
  BatchShape shape;
  DType dtype;
  int64_t chunk;          // rows of logits at a time, where the task has logits
  std::string loss_name;  // the metric tensor of its sums, f64: the loss, what that is divided by, and others
  std::string scores_name;  // of the metric tensor that scores remain in, where the task has scores; or empty
  Mode mode = Mode::train;
};

// Metrics over all rows of an evaluation that are not a mean over rows.
class RowMetrics {
 public:
  virtual ~RowMetrics() = default;
  // A row's scores [outputs] and its targets.
  virtual void add(std::span<const float> scores, std::span<const float> targets) = 0;
  [[nodiscard]] virtual Metrics metrics() const = 0;
};
struct RowMetricsRule {
  std::unique_ptr<RowMetrics> (*make)(const TaskSpec&);
  // Heap bytes for that many rows, with what the metrics need in addition.
  int64_t (*planned_bytes)(const TaskSpec&, int64_t rows);
};

// The prompts that are trained on, in addition to the answers: as the recipe asks; those that it asks for by
// `true` alone; all tokens, as sequences are scored whole; or rows have no prompts.
enum class Prompts : uint8_t { as_stated, by_true, whole, none };

// Files of a run folder that belong to a task.
inline constexpr const char* kReferenceFile = "reference.jsonl";
inline constexpr const char* kValueHeadFile = "value_head.safetensors";

// The metrics of a task, by the sums of its loss.
struct SumMetrics {
  Metrics (*of)(const TaskSpec&, std::span<const double> sums) = nullptr;  // nullptr: the loss alone
  // The sums that hold the least and the largest value of all samples instead; -1: the loss has no such sum.
  int64_t least = -1, most = -1;
};

// Words about the model that a task leaves.
struct ResultWords {
  std::string_view pipeline_tag = "text-generation";  // of the model card
  std::string_view used_by = "it scores no sequences; plimsoll generate asks it";
};

struct TaskRule {
  Task task;
  // Rows and samples.
  std::optional<RowFormat> format = {};  // the only one of its rows; none: that of next tokens
  Prompts prompts = Prompts::as_stated;
  int64_t sequences = 1;     // of a sample: they stay together in one micro-step
  bool pairs = false;        // of a chosen and a rejected answer
  bool has_targets = false;  // a sample is a source and a target, each of its own length
  bool masks = false;        // words are hidden from an encoder, and labels stand where those were
  bool scores = false;  // whole sequences, by a head `score`; else every token's next one, by the model's own
  std::array<std::string_view, 2> sequence_names = {};  // of the two sequences of a sample, where it has two
  int64_t (*classes)(const TaskSpec&) =
      nullptr;  // that labels are of; 0: they are numbers; nullptr: no labels
  // The label of a row in words: "2 (neutral)", "1, 3", "0.5". nullptr: it has none.
  std::string (*answer_words)(const TaskSpec&, std::span<const float> values,
                              std::span<const std::string> names) = nullptr;
  // Loss and metrics.
  std::string_view unit;  // what the loss is a mean over: "target tokens"
  Graph (*loss)(const LossRequest&) = nullptr;
  // f32 of each sequence that the loss reads in addition to its scores (input `sequences.targets`); nullptr:
  // none.
  int64_t (*targets)(const TaskSpec&) = nullptr;
  SumMetrics metrics = {};
  const RowMetricsRule* row_metrics = nullptr;  // nullptr: none
  // Metrics of an evaluation that tell which of two models is the better one: more of them is.
  std::vector<std::string> (*goals)(const TaskSpec&) = nullptr;
  // The files that a run leaves. `full`: all weights train.
  std::vector<std::string_view> (*files)(bool full) = nullptr;  // nullptr: those of any run
  std::string_view (*problem_type)(const TaskSpec&) = nullptr;  // of config.json; nullptr: it has none
  ResultWords result = {};
};

const TaskRule& rule_of(Task task);
std::string_view to_string(Task task);

// The classes that a task's labels are of; 0 where it has no labels, or they are numbers.
int64_t classes_of(const TaskSpec& task);
// The numbers per sequence of a task; 0 where its loss reads tokens alone.
int64_t targets_of(const TaskSpec& task);
Metrics metrics_of(const TaskSpec& task, std::span<const double> sums);

// The goals by which a run's best evaluation can be found: the loss, or a metric that the task's evaluations
// have.
inline constexpr std::string_view kLossGoal = "loss";
std::vector<std::string> goals_of(const TaskSpec& task);
bool is_goal(const TaskSpec& task, std::string_view name);
// The goals of any task, each once.
std::vector<std::string> all_goals();
// A goal's value as something of which less is better.
double cost_of(std::string_view goal, double value);

}  // namespace plimsoll
