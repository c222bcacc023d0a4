// Pairs of a chosen and a rejected answer; the model itself is trained to prefer the one to the other
// (ops/loss/preference_loss.cc). Metrics are named as TRL names them.
#include "graph/op_kind.h"
#include "ops/rule.h"
#include "ops/step_values.h"
#include "tasks/rules.h"

namespace plimsoll {
namespace {

Graph loss(const LossRequest& r) {
  LogProbGraph made = build_log_probs(r.model, r.shape, r.dtype, r.chunk, r.mode);
  Graph& graph = made.graph;
  const Preference& preference = r.task.preference;
  TensorId reference = kNoTensor;
  if (preference.reference == Preference::Reference::given)
    reference = graph.add_tensor({graph.axis_input(sequence_axis(r.model), "targets"),
                                  {r.shape.sequences, 1},
                                  DType::f32,
                                  Role::input});
  Op op;
  op.kind = OpKind::preference_loss;
  op.inputs = {made.logps, made.tokens, reference, graph.find(kStepTensor)};
  op.outputs = {graph.add_tensor({r.loss_name, {kNumPreferenceSums}, DType::f64, Role::metric})};
  op.attrs = {{"loss", static_cast<int64_t>(preference.loss)},
              {"beta", preference.beta},
              {"label_smoothing", preference.label_smoothing},
              {"nll", preference.nll}};
  op.scope = "preference";
  op.axis = sequence_axis(r.model);
  emit(graph, std::move(op), "");
  return std::move(made.graph);
}

int64_t targets(const TaskSpec& task) {
  return task.preference.reference == Preference::Reference::given ? 1 : 0;
}

Metrics metrics(const TaskSpec& task, std::span<const double> sums) {
  const double pairs = sums[static_cast<size_t>(PreferenceSum::pairs)];
  const auto mean = [&](PreferenceSum which) { return sums[static_cast<size_t>(which)] / pairs; };
  const double chosen = mean(PreferenceSum::chosen_rewards), rejected = mean(PreferenceSum::rejected_rewards);
  Metrics result;
  result.add({"rewards/chosen", chosen});
  result.add({"rewards/rejected", rejected});
  result.add({"rewards/accuracies", mean(PreferenceSum::right)});
  result.add({"rewards/margins", chosen - rejected});
  result.add({"logps/chosen", mean(PreferenceSum::chosen_logps)});
  result.add({"logps/rejected", mean(PreferenceSum::rejected_logps)});
  const bool orpo = task.preference.loss == PreferenceLoss::orpo;
  if (orpo || task.preference.nll > 0) result.add({"nll_loss", mean(PreferenceSum::nll)});
  if (!orpo) return result;
  result.add({"log_odds_ratio", mean(PreferenceSum::log_odds_ratio)});
  result.add({"log_odds_chosen", mean(PreferenceSum::log_odds_chosen)});
  return result;
}

std::vector<std::string> goals(const TaskSpec&) { return {"rewards/accuracies", "rewards/margins"}; }

// The reference of a model that trains whole.
std::vector<std::string_view> files(bool full) {
  return full ? std::vector<std::string_view>{kReferenceFile} : std::vector<std::string_view>{};
}

}  // namespace

const TaskRule dpo_task{.task = Task::dpo,
                        .format = RowFormat::preference,
                        .prompts = Prompts::by_true,
                        .sequences = 2,
                        .pairs = true,
                        .sequence_names = {"chosen", "rejected"},
                        .unit = "pairs",
                        .loss = loss,
                        .targets = targets,
                        .metrics = {metrics},
                        .goals = goals,
                        .files = files};

}  // namespace plimsoll
