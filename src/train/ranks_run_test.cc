// Several ranks as threads of one process: whatever they divide and wherever tensors are, steps have the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <optional>

#include "plan/search/sent_bytes.h"
#include "ranks/mpi_group.h"
#include "ranks/thread_group.h"
#include "train/run_programs.h"
#include "train/test_bench.h"

namespace plimsoll::test {
namespace {

constexpr int kSteps = 3;

// The last one has fewer sequences than there are ranks.
EffectiveBatch batch_of_step(int step, int64_t sequences) {
  EffectiveBatch batch(sequences, kLength);
  const int64_t count = step == kSteps ? 1 : sequences;
  for (int64_t sequence = 0; sequence < count; ++sequence) {
    Example example;
    for (int64_t i = 0; i < 5 + sequence % 6; ++i)
      example.ids.push_back(static_cast<int32_t>((5 * i + 11 * sequence + 3 * step) % 64));
    example.labels = example.ids;
    example.targets = std::ssize(example.ids) - 1;
    batch.add(example, 10 * step + sequence);
  }
  return batch;
}

PlanRequest request_of(const Experiment& experiment, const CpuSettings& cpu) {
  PlanRequest request;
  request.workload.experiment = experiment;
  request.target.device = describe_cpu(cpu.isa, cpu.threads);
  request.target.targets = {Space::disk};
  request.target.budget.disk_bytes = int64_t{1} << 30;
  return request;
}

// Weights, masters and states after the last step, whole; the norm of each step, and the bytes that rank 0 sent.
struct RankedResult {
  Result tensors;
  std::vector<double> norms, losses;
  int64_t sent = 0;
};

class Ranks {
 public:
  Ranks(Experiment experiment, int ranks, ShardStage stage)
      : experiment_(std::move(experiment)), ranks_(ranks) {
    experiment_.ranks = ranks;
    experiment_.optimizer.shard = stage;
  }

  Variant variant() const {
    Variant variant = variant_of(experiment_);
    variant.micro_batch = 1;
    variant.accumulation = experiment_.samples_each();
    return variant;
  }

  RankedResult run(const Variant& variant) {
    const Plan plan = plan_variant(request_of(experiment_, cpu_), variant);
    result_ = {};
    checked_.clear();
    run_as_threads(ranks_, [&](Group& group) { run_rank(plan, group); });
    // In the last step no rank has more than one sequence.
    const SentBytes sent = sent_bytes(plan);
    EXPECT_EQ(plan.sent_bytes, sent.in_step + variant.accumulation * sent.in_micro_step);
    EXPECT_EQ(result_.sent,
              kSteps * sent.in_step + ((kSteps - 1) * variant.accumulation + 1) * sent.in_micro_step);
    return std::move(result_);
  }

  // As one rank of a group, whose tensors go to a file of its own.
  void run_as(Group& group, const Variant& variant, const std::string& file) {
    file_ = file;
    run_rank(plan_variant(request_of(experiment_, cpu_), variant), group);
  }

 private:
  void run_rank(const Plan& plan, Group& group) {
    CpuDevice device(cpu_);
    const RunMemory memory(device, plan.layout, disk_in_memory());
    const PersistentState state(plan.layout, memory.arenas(), group.rank());
    init_base_weights(state, experiment_.model, 1);
    if (experiment_.lora) init_adapters(state, 1);
    RunRanks ranks(group);
    OptimizerStep step({plan, device, memory, true, nullptr, ranks});
    const double scale = experiment_.precision.scales_loss() ? kScale : 1.0;
    for (int number = 1; number <= kSteps; ++number) {
      const EffectiveBatch batch = batch_of_step(number, experiment_.effective_batch);
      const auto done = step.run(
          batch, {.number = number, .learning_rate = 0.02, .seed = 7, .update = number, .loss_scale = scale});
      if (!group.leads()) continue;
      result_.norms.push_back(done.grad_norm);
      result_.losses.push_back(done.loss);
    }
    if (group.leads()) result_.sent = step.sent_bytes();
    if (file_.empty()) return take(state, group);
    std::ofstream out(file_ + "." + std::to_string(group.rank()), std::ios::binary);
    for (const TableRow& row : state.rows()) {
      if (row.role == Role::gradient || row.role == Role::metric) continue;
      std::string own(static_cast<size_t>(row.bytes), '\0');
      state.read(row, 0, std::as_writable_bytes(std::span(own)));
      out << row.name << own;
    }
    if (!group.leads()) return;
    for (const std::vector<double>* values : {&result_.norms, &result_.losses})
      out.write(reinterpret_cast<const char*>(values->data()), std::ssize(*values) * 8);
  }

  void take(const PersistentState& state, Group& group) {
    const std::lock_guard lock(mutex_);
    for (const TableRow& row : state.rows()) {
      if (row.role == Role::gradient || row.role == Role::metric) continue;
      std::vector<std::byte>& whole = result_.tensors[row.name];
      whole.resize(static_cast<size_t>(row.whole_bytes()));
      const ElementRange range = state.range_of(row);
      const int64_t size = size_of(row.dtype);
      std::vector<std::byte> own(static_cast<size_t>(range.elements * size));
      state.read(row, 0, own);
      const auto at = whole.begin() + range.first * size;
      const bool compares = !row.is_piece() && checked_.contains(row.name);
      EXPECT_TRUE(!compares || std::equal(own.begin(), own.end(), at))
          << row.name << ", rank " << group.rank();
      std::ranges::copy(own, at);
      checked_.insert(row.name);
    }
  }

  Experiment experiment_;
  int ranks_;
  std::string file_;
  CpuSettings cpu_{std::min(effective_isa(std::nullopt), Isa::avx512_bf16), 1};
  std::mutex mutex_;
  std::set<std::string> checked_;
  RankedResult result_;
};

void expect_same(const RankedResult& got, const RankedResult& want, const std::string& what) {
  EXPECT_EQ(got.norms, want.norms) << what;
  EXPECT_EQ(got.losses, want.losses) << what;
  ASSERT_EQ(got.tensors.size(), want.tensors.size()) << what;
  for (const auto& [name, bytes] : want.tensors)
    ASSERT_EQ(got.tensors.at(name), bytes) << name << ": " << what;
}

class RanksRun : public ::testing::TestWithParam<Case> {
 protected:
  // The relative error that another order of sums makes of a loss; of a norm ten times as much.
  static double tolerance() { return GetParam().precision.compute == DType::f32 ? 1e-5 : 5e-3; }
};

// The table has two slices in the pieces of two ranks and of three, and the last piece is shorter than the others.
Case large(Case c) {
  c.vocab = 4201;
  c.hidden = 64;
  return c;
}

TEST_P(RanksRun, stages_and_offload_change_no_bit) {
  const bool divides = GetParam().optimizer != OptimizerKind::adafactor;
  for (const int ranks : {2, 3}) {
    Experiment experiment = experiment_of(large(GetParam()), 2, true);
    experiment.effective_batch = 5;
    Ranks whole(experiment, ranks, ShardStage::none);
    const Variant variant = whole.variant();
    const RankedResult want = whole.run(variant);
    for (const double loss : want.losses) EXPECT_TRUE(std::isfinite(loss) && loss > 0);
    for (const bool divided : {false, true}) {
      if (divided && !divides) continue;
      Ranks run(experiment, ranks, divided ? ShardStage::states : ShardStage::none);
      if (divided) expect_same(run.run(variant), want, "divided");
      for (const int parts : {2, 7, 15}) {
        if (ranks == 3 && parts != 7) continue;
        Variant moved = variant;
        moved.offload = choice_of(parts, parts % 3);
        moved.recompute.layers.assign(parts % 2 == 0 ? 0 : kLayers, RecomputePoint::block);
        expect_same(
            run.run(moved), want,
            "offload " + std::to_string(parts) + (divided ? ", divided, " : ", ") + std::to_string(ranks));
      }
    }
  }
}

// With one micro-step there is one order of sums: that of ranks. With several, sums over ranks are added up.
TEST_P(RanksRun, divided_gradients_have_the_bits_of_whole_ones_wherever_the_order_of_sums_is_theirs) {
  if (GetParam().optimizer == OptimizerKind::adafactor) GTEST_SKIP() << "is not divided";
  for (const int ranks : {2, 3}) {
    Experiment experiment = experiment_of(large(GetParam()), 2, true);
    experiment.effective_batch = 5;
    Ranks states(experiment, ranks, ShardStage::states), gradients(experiment, ranks, ShardStage::gradients);
    Variant several = states.variant(), one = several;
    one.micro_batch = experiment.samples_each();
    one.accumulation = 1;
    const RankedResult whole = states.run(several);
    const RankedResult want[] = {states.run(one), gradients.run(several)};
    for (int step = 0; step < kSteps; ++step) {
      EXPECT_NEAR(want[1].losses[step], whole.losses[step], tolerance() * whole.losses[step]);
      EXPECT_NEAR(want[1].norms[step], whole.norms[step], 10 * tolerance() * whole.norms[step]);
    }
    expect_same(gradients.run(one), want[0], "one micro-step");
    for (const int parts : {2, 7, 15}) {
      if (ranks == 3 && parts != 7) continue;
      for (const bool is_one : {true, false}) {
        Variant moved = is_one ? one : several;
        moved.offload = choice_of(parts, parts % 3);
        moved.recompute.layers.assign(parts % 2 == 0 ? 0 : kLayers, RecomputePoint::block);
        expect_same(gradients.run(moved), want[is_one ? 0 : 1], "offload " + std::to_string(parts));
      }
    }
  }
}

// Whatever is gathered where it is read, and however often.
TEST_P(RanksRun, divided_weights_have_the_bits_of_divided_gradients) {
  if (GetParam().optimizer == OptimizerKind::adafactor) GTEST_SKIP() << "is not divided";
  for (const int ranks : {2, 3}) {
    Experiment experiment = experiment_of(large(GetParam()), 2, true);
    experiment.effective_batch = 5;
    Ranks gradients(experiment, ranks, ShardStage::gradients),
        weights(experiment, ranks, ShardStage::weights);
    Variant variant = gradients.variant();
    const RankedResult want = gradients.run(variant);
    const RankedResult got = weights.run(variant);
    expect_same(got, want, "divided weights");
    EXPECT_GT(got.sent, want.sent);
    for (const int parts : {2, 4, 15}) {
      if (ranks == 3 && parts != 15) continue;
      Variant moved = variant;
      moved.offload = choice_of(parts, parts % 3);
      moved.recompute.layers.assign(parts == 2 ? 0 : kLayers, RecomputePoint::block);
      expect_same(weights.run(moved), want, "offload " + std::to_string(parts));
    }
  }
}

TEST_P(RanksRun, updates_in_the_backward_pass_change_no_bit) {
  if (GetParam().lora || GetParam().precision.scales_loss()) GTEST_SKIP() << "has no such updates";
  for (const int ranks : {2, 3}) {
    Experiment experiment = experiment_of(large(GetParam()), 1, false);
    experiment.effective_batch = ranks;
    for (const ShardStage stage : {ShardStage::none, ShardStage::gradients, ShardStage::weights}) {
      if (stage != ShardStage::none && GetParam().optimizer == OptimizerKind::adafactor) continue;
      if (stage == ShardStage::weights && ranks == 3) continue;
      Ranks run(experiment, ranks, stage);
      Variant variant = run.variant();
      const RankedResult want = run.run(variant);
      variant.update_in_backward = true;
      for (const int parts : {0, 8}) {
        variant.offload = choice_of(parts, 1);
        expect_same(run.run(variant), want, "in the backward pass, offload " + std::to_string(parts));
      }
    }
  }
}

// tests/several_devices_test.py compares the files: of threads, and of processes that mpirun starts.
TEST(RanksBits, go_to_files_whoever_moves_them) {
  const char* const file = std::getenv("PLIMSOLL_TEST_BITS");
  if (file == nullptr) GTEST_SKIP() << "run by tests/several_devices_test.py";
  const StartedBy started = who_started_me();
  constexpr int kThreads = 3;
  const int count = started.ranks > 1 ? started.ranks : kThreads;
  Experiment experiment = experiment_of(large({"full_bf16_master", "llama", false, kBf16Master}), 2, true);
  experiment.effective_batch = 5;
  std::optional<MpiGroup> processes;
  if (started.ranks > 1) processes.emplace(started);
  for (const bool divided : {false, true}) {
    const std::string own = std::string(file) + (divided ? "-divided" : "-whole");
    const auto rank = [&](Group& group) {
      Ranks ranks(experiment, count, divided ? ShardStage::states : ShardStage::none);
      ranks.run_as(group, ranks.variant(), own);
    };
    if (processes)
      rank(*processes);
    else
      run_as_threads(count, rank);
  }
  if (processes) processes->ends_together();
}

INSTANTIATE_TEST_SUITE_P(
    Models, RanksRun,
    ::testing::Values(Case{"full_fp32", "qwen2", false, kFp32},
                      Case{"full_bf16_master", "llama", false, kBf16Master},
                      Case{"full_bf16_pure", "qwen2", false, kBf16Pure},
                      Case{"full_fp16", "llama", false, kFp16}, Case{"lora_bf16", "llama", true, kBf16},
                      Case{"adamw8bit", "llama", false, kBf16, OptimizerKind::adamw8bit},
                      Case{"adafactor", "llama", false, kBf16, OptimizerKind::adafactor}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace plimsoll::test
