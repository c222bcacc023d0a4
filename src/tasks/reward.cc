// Pairs of a chosen and a rejected answer; the head's one score is the reward, and the loss wants the chosen
// one's to be higher (ops/loss/sequence_loss.cc). Metrics are named as TRL names them.
#include "graph/op_kind.h"
#include "tasks/rules.h"

namespace plimsoll {
namespace {

Graph loss(const LossRequest& r) {
  return with_sequence_loss(r, OpKind::pair_loss, 1, kNumPairSums, {{"centering", r.task.centering}});
}

int64_t targets(const TaskSpec&) { return 1; }  // the margin, in the chosen sequence's

Metrics metrics(const TaskSpec&, std::span<const double> sums) {
  const auto sum = [&](PairSum which) { return sums[static_cast<size_t>(which)]; };
  const double pairs = sum(PairSum::pairs);
  Metrics result;
  result.add({"accuracy", sum(PairSum::right) / pairs});
  result.add({"margin", (sum(PairSum::chosen) - sum(PairSum::rejected)) / pairs});
  result.add({"mean_reward", (sum(PairSum::chosen) + sum(PairSum::rejected)) / (2 * pairs)});
  result.add({"min_reward", sum(PairSum::least)});
  result.add({"max_reward", sum(PairSum::most)});
  return result;
}

std::vector<std::string> goals(const TaskSpec&) { return {"accuracy", "margin"}; }

std::vector<std::string_view> files(bool) { return {kValueHeadFile}; }  // of some of its heads

}  // namespace

const TaskRule reward_task{
    .task = Task::reward,
    .format = RowFormat::preference,
    .prompts = Prompts::whole,
    .sequences = 2,
    .pairs = true,
    .scores = true,
    .sequence_names = {"chosen", "rejected"},
    .unit = "pairs",
    .loss = loss,
    .targets = targets,
    .metrics = {metrics, static_cast<int64_t>(PairSum::least), static_cast<int64_t>(PairSum::most)},
    .goals = goals,
    .files = files,
    .result = {"text-classification", "plimsoll score prints its rewards"}};

}  // namespace plimsoll
