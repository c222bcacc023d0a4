// Steps of several ranks as threads of one process, on tiny models.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>

#include "base/format.h"
#include "plan/search/sent_bytes.h"
#include "ranks/thread_group.h"
#include "train/run_programs.h"
#include "train/test_bench.h"

namespace plimsoll::test {

inline constexpr int kSteps = 3;

// The last one has fewer sequences than there are ranks.
inline EffectiveBatch batch_of_step(int step, int64_t sequences) {
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

// The devices of ranks: what they are planned for, and one for each.
struct RankDevices {
  DeviceDescription description;
  std::vector<Space> targets;
  std::function<std::unique_ptr<Device>(int rank)> open;
  ExchangeWay exchange = ExchangeWay::staged;
};

inline CpuSettings cpu_of_rank() { return {std::min(effective_isa(std::nullopt), Isa::avx512_bf16), 1}; }

inline RankDevices cpus() {
  const CpuSettings cpu = cpu_of_rank();
  return {describe_cpu(cpu.isa, cpu.threads), {Space::disk}, [cpu](int) {
            return std::make_unique<CpuDevice>(cpu);
          }};
}

inline PlanRequest request_of(const Experiment& experiment, const RankDevices& devices) {
  PlanRequest request;
  request.workload.experiment = experiment;
  request.target.device = devices.description;
  request.target.targets = devices.targets;
  request.target.exchange = devices.exchange;
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
  Ranks(Experiment experiment, int ranks, ShardStage stage, RankDevices devices = cpus())
      : experiment_(std::move(experiment)), ranks_(ranks), devices_(std::move(devices)) {
    experiment_.ranks = ranks;
    experiment_.optimizer.shard = stage;
  }

  Variant variant() const {
    Variant variant = variant_of(experiment_);
    variant.micro_batch = 1;
    variant.accumulation = experiment_.samples_each();
    return variant;
  }

  // All are processes of one node, which have what is frozen once.
  Ranks& with_one_copy(Space space = Space::device) {
    copy_ = {ranks_, space};
    return *this;
  }

  PlanRequest request() const {
    PlanRequest request = request_of(experiment_, devices_);
    request.target.layout.node_copy = copy_;
    return request;
  }

  // As the next runs have them.
  void compute_on(RankDevices devices) { devices_ = std::move(devices); }

  RankedResult run(const Variant& variant) {
    const Plan plan = plan_variant(request(), variant);
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
    run_rank(plan_variant(request(), variant), group);
  }

 private:
  void run_rank(const Plan& plan, Group& group) {
    const std::unique_ptr<Device> opened = devices_.open(group.rank());
    Device& device = *opened;
    RunRanks ranks(group);
    RunMemory memory(device, plan.layout, disk_in_memory(), ranks);
    const PersistentState state(plan.layout, memory.arenas(), group.rank());
    init_base_weights(state, experiment_.model, 1);
    group.barrier();
    memory.seal_shared();
    if (experiment_.lora) init_adapters(state, 1);
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
    std::ofstream out(formatted("{}.{}", file_, group.rank()), std::ios::binary);
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
  NodeCopy copy_;
  std::string file_;
  RankDevices devices_;
  std::mutex mutex_;
  std::set<std::string> checked_;
  RankedResult result_;
};

inline void expect_same(const RankedResult& got, const RankedResult& want, const std::string& what) {
  EXPECT_EQ(got.norms, want.norms) << what;
  EXPECT_EQ(got.losses, want.losses) << what;
  ASSERT_EQ(got.tensors.size(), want.tensors.size()) << what;
  for (const auto& [name, bytes] : want.tensors)
    ASSERT_EQ(got.tensors.at(name), bytes) << name << ": " << what;
}

// The table has two slices in the pieces of two ranks and of three, and the last piece is shorter than the others.
inline Case large(Case c) {
  c.vocab = 4201;
  c.hidden = 64;
  return c;
}

}  // namespace plimsoll::test
