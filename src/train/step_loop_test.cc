// Tests of one step without the loop around it: no heap allocation, planned bytes allocated, the null device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cpu/describe.h"
#include "cpu/isa.h"
#include "files/test_allocations.h"
#include "models/test_specs.h"
#include "plan/search/plan.h"
#include "runs/metrics.h"
#include "runtime/device.h"
#include "train/batch_writer.h"
#include "weights/weights.h"

namespace plimsoll {
namespace {

ModelSpec tiny() { return test_spec({.family = "qwen2"}); }

Plan tiny_plan(DType compute, const CpuSettings& cpu) {
  PlanRequest request;
  request.workload.experiment.model = tiny();
  request.workload.experiment.lora = true;
  request.workload.experiment.lora_options = {.r = 4, .alpha = 8, .dropout = 0.1};
  request.workload.experiment.precision = {compute, DType::f32, DType::f32, false, compute == DType::bf16};
  request.workload.experiment.effective_batch = 2;
  request.workload.experiment.max_length = 16;
  request.target.device = describe_cpu(cpu.isa, cpu.threads);
  return make_plan(request);
}

void append_two_sequences(MicroBatch& batch) {
  const std::vector<int32_t> ids = {1, 2, 3, 4, 5, 6, 7};
  batch.append(ids, ids, 0);
  batch.append(ids, ids, 1);
}

TEST(StepLoop, allocates_nothing_on_the_heap) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer's allocator is not replaced";
#endif
  const CpuSettings cpu{std::min(effective_isa(std::nullopt), Isa::avx512_bf16), 2};
  for (const DType compute : {DType::f32, DType::bf16}) {
    const Plan plan = tiny_plan(compute, cpu);
    CpuDevice device(cpu);
    const auto memory = device.map(plan.arena_bytes());
    const PersistentState state(plan.layout, memory->data());
    init_base_weights(state, plan.request.workload.experiment.model, 1);
    init_adapters(state, 1);
    const Executor train(plan.programs[0], plan.layout.programs[0], device, *memory);
    const Executor update(plan.programs[1], plan.layout.programs[1], device, *memory);
    MicroBatch batch(2, 16);
    append_two_sequences(batch);
    BatchWriter writer(train, plan.request.workload.experiment.model);
    const auto step = [&] {
      writer.write(batch);
      writer.set(StepValue::first_micro_step, 1);
      writer.set(StepValue::loss_scale, 1.0 / 12);
      train.run();
      update.input<double>(kStepTensor)[static_cast<size_t>(StepValue::optimizer_step)] = 1;
      update.run();
    };
    step();  // the thread pool starts here
    const int64_t before = heap_allocations();
    for (int i = 0; i < 3; ++i) step();
    EXPECT_EQ(heap_allocations() - before, 0) << to_string(compute);
    const auto loss = train.result<double>(kLossTensor);
    EXPECT_NEAR(loss[0] / loss[1], std::log(128.0), 0.5);
  }
}

TEST(NullDevice, a_plan_runs_on_it_and_asks_for_exactly_the_planned_bytes) {
  const Plan plan = tiny_plan(DType::f32, {Isa::avx2, 1});
  NullDevice device;
  const auto memory = device.map(plan.arena_bytes());
  int64_t ops = 0;
  for (size_t i = 0; i < plan.programs.size(); ++i) {
    const Executor program(plan.programs[i], plan.layout.programs[i], device, *memory);
    program.run();
    ops += static_cast<int64_t>(plan.programs[i].ops().size());
  }
  EXPECT_EQ(device.mapped_bytes, plan.layout.persistent_bytes + plan.layout.transient_bytes);
  EXPECT_EQ(device.bound_ops, ops);
  EXPECT_EQ(device.calls, ops);
}

TEST(Arena, asks_for_the_planned_bytes_to_the_byte) {
  const CpuSettings cpu{Isa::avx2, 1};
  const Plan plan = tiny_plan(DType::bf16, cpu);
  EXPECT_EQ(CpuDevice(cpu).map(plan.arena_bytes())->bytes(), plan.arena_bytes());
}

}  // namespace
}  // namespace plimsoll
