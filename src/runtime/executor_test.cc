// Tests of programs with tensors off the device: values, order, failures, and the calls of a device.
#include "runtime/executor.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "base/error.h"
#include "files/test_allocations.h"

namespace plimsoll {
namespace {

// state = (x + x) + state, where x + x is kept elsewhere and so is the state, which is updated in two slices.
// Sizes are no multiples of a disk's block.
std::string program(const std::string& space) {
  return "graph g\n"
         "tensor x f32[1300] input\n"
         "tensor w.m f32[1300] state " +
         space +
         "\n"
         "tensor w.v f32[700] state " +
         space +
         "\n"
         "tensor kept.home f32[1300] activation " +
         space +
         "\n"
         "early f32[700] = fetch(w.v) {elements=700, first=0} forward\n"
         "kept f32[1300] = add(x, x) forward\n"
         "kept.home = store(kept) {first=0} forward\n"
         "kept = store_wait(kept) forward\n"
         "other f32[1300] = add(x, x) forward\n"
         "other2 f32[1300] = add(other, other) forward\n"
         "early = fetch_wait(early) forward\n"
         "back f32[700] = fetch(kept.home) {elements=700, first=512} forward\n"
         "back = fetch_wait(back) forward\n"
         "sum f32[700] = add(back, early) forward\n"
         "w.v = store(sum) {first=0} forward\n"
         "whole f32[1300] = fetch(kept.home) {elements=1300, first=0} forward\n"
         "whole = fetch_wait(whole) forward\n"
         "twice f32[1300] = add(whole, other2) forward\n"
         "w.m = store(twice) {first=0} forward\n"
         "sum = store_wait(sum) forward\n"
         "twice = store_wait(twice) forward\n";
}

const CpuSettings kCpu{Isa::avx2, 1};

// One program, laid out and bound.
struct BoundProgram {
  BoundProgram(Device& device, const std::string& text, const std::filesystem::path& folder,
               bool poison = true)
      : programs{parse_graph(text)},
        layout(lay_out(programs)),
        memory(device, layout, folder),
        executor(programs[0], layout.programs[0], device, memory.arenas(), {.poison = poison}) {
    validate(programs, layout);
  }
  [[nodiscard]] std::vector<float> persistent(const char* name) const {
    const TableRow& row = *layout.find_persistent(name);
    std::vector<float> values(static_cast<size_t>(row.bytes) / sizeof(float));
    const auto bytes = std::as_writable_bytes(std::span(values));
    if (row.space == Space::disk) {
      memory.arenas().disk->read(row.offset, bytes);
    } else {
      std::memcpy(bytes.data(), memory.arenas().address(row), bytes.size());
    }
    return values;
  }
  void fill_input() const {
    const auto x = executor.input<float>("x");
    std::iota(x.begin(), x.end(), 1.0F);
  }

  std::vector<Graph> programs;
  ArenaLayout layout;
  RunMemory memory;
  Executor executor;
};

class ExecutorWithOffload : public testing::TestWithParam<const char*> {};

TEST_P(ExecutorWithOffload, values_that_went_away_come_back_and_what_is_stored_stays) {
  CpuDevice device(kCpu);
  const BoundProgram run(device, program(GetParam()), testing::TempDir());
  for (int i = 1; i <= 3; ++i) {
    run.fill_input();
    run.executor.run();
    const auto v = run.persistent("w.v");
    for (size_t k = 0; k < v.size(); ++k)
      ASSERT_EQ(v[k], static_cast<float>(i) * 2.0F * static_cast<float>(k + 513)) << k;
    const auto m = run.persistent("w.m");
    for (size_t k = 0; k < m.size(); ++k) ASSERT_EQ(m[k], 6.0F * static_cast<float>(k + 1)) << k;
  }
}

TEST_P(ExecutorWithOffload, the_step_loop_allocates_nothing) {
  CpuDevice device(kCpu);
  const BoundProgram run(device, program(GetParam()), testing::TempDir());
  run.fill_input();
  run.executor.run();
  const int64_t before = heap_allocations_of_process();
  for (int i = 0; i < 10; ++i) {
    run.fill_input();
    run.executor.run();
  }
  EXPECT_EQ(heap_allocations_of_process() - before, 0);
}

TEST_P(ExecutorWithOffload, the_null_device_counts_transfers_and_their_bytes) {
  NullDevice device;
  const BoundProgram run(device, program(GetParam()), "", false);
  run.executor.run();
  EXPECT_EQ(device.transfers, 6);
  EXPECT_EQ(device.transferred_bytes, 4 * (3 * 1300 + 3 * 700));
  const bool disk = std::string(GetParam()) == "disk";
  const Space space = disk ? Space::disk : Space::host;
  EXPECT_EQ(disk ? device.disk_bytes : device.host_bytes, run.layout.arena_bytes(space));
  EXPECT_EQ(disk ? device.host_bytes : device.disk_bytes, 0);
  EXPECT_EQ(device.calls, 5);
}

INSTANTIATE_TEST_SUITE_P(Spaces, ExecutorWithOffload, testing::Values("host", "disk"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST(Executor, computes_on_host_tensors_where_the_device_reaches_them) {
  CpuDevice device(kCpu);
  const BoundProgram run(device,
                         "graph g\n"
                         "tensor x f32[64] input\n"
                         "tensor w f32[64] state host\n"
                         "tensor sum f32[64] activation host\n"
                         "sum = add(x, w) forward\n"
                         "w = add(sum, x) forward\n",
                         "");
  for (int i = 0; i < 2; ++i) {
    run.fill_input();
    run.executor.run();
  }
  EXPECT_EQ(run.persistent("w")[63], 4 * 64.0F);
}

TEST(Executor, without_an_io_queue_a_program_with_transfers_is_refused) {
  const std::vector<Graph> programs = {parse_graph(program("host"))};
  const ArenaLayout layout = lay_out(programs);
  CpuDevice device(kCpu);
  const auto memory = device.map(layout.arena_bytes());
  EXPECT_THROW(Executor(programs[0], layout.programs[0], device, *memory), InternalError);
}

// A device whose transfers fail from number `fails_at` on.
class FailingDevice : public CpuDevice {
 public:
  explicit FailingDevice(int fails_at) : CpuDevice(kCpu), fails_at_(fails_at) {}
  std::vector<BoundTransfer> bind_transfers(std::span<const Transfer> transfers) override {
    std::vector<BoundTransfer> bound = CpuDevice::bind_transfers(transfers);
    for (BoundTransfer& transfer : bound)
      transfer.job = [this, job = transfer.job] {
        if (++started_ >= fails_at_) throw StoppedError("no space left on device");
        job();
      };
    return bound;
  }

 private:
  int fails_at_;
  int started_ = 0;
};

TEST(Executor, a_transfer_that_fails_stops_the_run_wherever_it_was) {
  for (int fails_at = 1; fails_at <= 6; ++fails_at) {
    FailingDevice device(fails_at);
    const BoundProgram run(device, program("disk"), testing::TempDir());
    run.fill_input();
    EXPECT_THROW(run.executor.run(), StoppedError) << fails_at;
  }
}

}  // namespace
}  // namespace plimsoll
