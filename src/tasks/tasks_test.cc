#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "ops/loss/preference_loss.h"
#include "ops/operands.h"
#include "ops/rule.h"
#include "tasks/task.h"

namespace plimsoll {
namespace {

ModelSpec tiny() {
  return parse_model_spec({{"model_type", "llama"},
                           {"hidden_size", 16},
                           {"intermediate_size", 32},
                           {"num_hidden_layers", 2},
                           {"num_attention_heads", 2},
                           {"vocab_size", 64}},
                          "c");
}

Graph loss_of(const TaskSpec& task, const ModelSpec& model, const std::string& scores = "") {
  return rule_of(task.task).loss({task, model, {32, 4, 8}, DType::f32, 8, "loss", scores});
}

TEST(Task, names_are_those_of_the_recipe) {
  EXPECT_EQ(to_string(Task::sft), "sft");
  EXPECT_EQ(to_string(Task::classify), "classify");
  EXPECT_EQ(to_string(Task::dpo), "dpo");
  for (const Task task : {Task::sft, Task::pretrain, Task::reward, Task::classify, Task::dpo})
    EXPECT_EQ(rule_of(task).task, task);
}

TEST(Task, tasks_that_score_have_a_fresh_head_in_place_of_the_models_own) {
  for (const TaskSpec& task :
       {TaskSpec{.task = Task::reward}, TaskSpec{.task = Task::classify, .outputs = 3}}) {
    const Graph graph = loss_of(task, tiny());
    verify(graph);
    const Tensor& head = graph.tensor(graph.find("score.weight"));
    EXPECT_EQ(head.shape, (Shape{task.outputs, 16}));
    EXPECT_EQ(head.parameter.origin, Origin::fresh);
    EXPECT_EQ(head.parameter.part, WeightPart::head);
    EXPECT_EQ(graph.find("lm_head.weight"), kNoTensor);
    EXPECT_EQ(graph.find("labels"), kNoTensor);
    EXPECT_EQ(graph.tensor(graph.find("sequences.targets")).shape, (Shape{4, 1}));
  }
}

TEST(Task, scores_remain_where_they_are_asked_for) {
  const Graph graph = loss_of({.task = Task::classify, .outputs = 3}, tiny(), "scores");
  EXPECT_EQ(graph.tensor(graph.find("scores")).role, Role::metric);
  EXPECT_EQ(graph.tensor(graph.find("scores")).shape, (Shape{4, 3}));
}

TEST(Task, a_folder_that_scores_sequences_has_no_next_tokens_to_learn) {
  ModelSpec model = tiny();
  model.scores_sequences = true;
  EXPECT_THROW(loss_of({.task = Task::sft}, model), UsageError);
  EXPECT_NO_THROW(loss_of({.task = Task::reward}, model));
}

TEST(Task, preferences_are_of_the_models_own_head_and_read_a_reference_where_it_is_given) {
  const Graph graph = loss_of({.task = Task::dpo}, tiny());
  verify(graph);
  EXPECT_NE(graph.find("lm_head.weight"), kNoTensor);
  EXPECT_EQ(graph.find("sequences.targets"), kNoTensor);
  EXPECT_EQ(graph.tensor(graph.find("logps")).shape, (Shape{4, 2}));
  TaskSpec given{.task = Task::dpo};
  given.preference.reference = Preference::Reference::given;
  EXPECT_EQ(targets_of(given), 1);
  const Graph with = loss_of(given, tiny());
  verify(with);
  EXPECT_EQ(with.ops().back().inputs[operand::preference_loss::reference], with.find("sequences.targets"));
}

TEST(Task, metrics_of_preferences_are_named_as_trl_names_them) {
  const std::array<double, kNumPreferenceSums> sums = {8, 4, 3, 2, -2, -40, -60, 6, 1, -2};
  const auto names = [](const Metrics& metrics) {
    std::vector<std::string_view> all;
    for (const Metric& metric : metrics) all.push_back(metric.name);
    return all;
  };
  TaskSpec task{.task = Task::dpo};
  const Metrics dpo = metrics_of(task, sums);
  EXPECT_EQ(names(dpo),
            (std::vector<std::string_view>{"rewards/chosen", "rewards/rejected", "rewards/accuracies",
                                           "rewards/margins", "logps/chosen", "logps/rejected"}));
  EXPECT_DOUBLE_EQ(dpo.all[2].value, 0.75);
  EXPECT_DOUBLE_EQ(dpo.all[3].value, 1.0);
  EXPECT_DOUBLE_EQ(dpo.all[4].value, -10.0);
  task.preference.loss = PreferenceLoss::orpo;
  const Metrics orpo = metrics_of(task, sums);
  ASSERT_EQ(orpo.count, 9);
  EXPECT_EQ(orpo.all[6].name, "nll_loss");
  EXPECT_DOUBLE_EQ(orpo.all[7].value, -0.5);
}

TEST(Task, the_best_evaluation_is_found_by_the_loss_or_by_what_the_task_tells) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(goals_of({.task = Task::sft}), Names{"loss"});
  EXPECT_EQ(goals_of({.task = Task::classify, .problem = ClassProblem::numbers}),
            (Names{"loss", "pearson", "spearmanr"}));
  EXPECT_EQ(goals_of({.task = Task::classify, .outputs = 2, .problem = ClassProblem::numbers}),
            Names{"loss"});
  EXPECT_TRUE(is_goal({.task = Task::reward}, "margin"));
  EXPECT_FALSE(is_goal({.task = Task::reward}, "f1"));
  EXPECT_EQ(all_goals(), (Names{"loss", "accuracy", "margin", "f1", "matthews_correlation", "pearson",
                                "spearmanr", "rewards/accuracies", "rewards/margins"}));
  EXPECT_LT(cost_of("accuracy", 0.9), cost_of("accuracy", 0.8));
  EXPECT_LT(cost_of("loss", 0.8), cost_of("loss", 0.9));
}

TEST(Task, metrics_are_means_over_what_the_loss_is_a_mean_over) {
  const std::array<double, 7> sums = {2.0, 4.0, 3.0, 6.0, -2.0, -1.5, 2.5};
  const Metrics reward = metrics_of({.task = Task::reward}, sums);
  ASSERT_EQ(reward.count, 5);
  EXPECT_EQ(reward.all[0].name, "accuracy");
  EXPECT_DOUBLE_EQ(reward.all[0].value, 0.75);
  EXPECT_DOUBLE_EQ(reward.all[1].value, 2.0);
  EXPECT_DOUBLE_EQ(reward.all[2].value, 0.5);
  EXPECT_DOUBLE_EQ(reward.all[3].value, -1.5);
  EXPECT_EQ(metrics_of({.task = Task::sft}, std::array<double, 2>{1, 1}).count, 0);
}

}  // namespace
}  // namespace plimsoll
