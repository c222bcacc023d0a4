// Kernels for GPUs with every load and store watched (gpu/emulator_check.h): what no comparison of results
// shows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <vector>

#include "base/error.h"
#include "gpu/emulator_check.h"
#include "gpu/stream.h"
#include "harness/gpu_harness.h"

namespace plimsoll::harness {
namespace {

using gpu::emulated::Region;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// An op's operands. Outputs hold values before where the op updates them.
std::vector<Region> operands(const Graph& graph, const Op& op, const AddressOf& address) {
  const std::span<std::byte> arena = whole_arena(graph, address);
  std::vector<Region> regions = {{arena.data(), arena.size(), false, false, false, "the arena"}};
  const auto add = [&](TensorId id, bool writable, bool initial) {
    const Tensor& tensor = graph.tensor(id);
    regions.push_back(
        {address(id), static_cast<size_t>(tensor.bytes()), true, writable, initial, tensor.name});
  };
  for (const TensorId id : op.inputs)
    if (id != kNoTensor) add(id, false, true);
  for (const TensorId id : op.outputs)
    if (id != kNoTensor) add(id, true, is_persistent(graph.tensor(id).role));
  if (op.scratch != kNoTensor) add(op.scratch, true, false);
  return regions;
}

class GpuChecked : public ::testing::TestWithParam<OpCase> {};

TEST_P(GpuChecked, kernels_touch_their_operands_and_nothing_races) {
  for (const DType dtype : GetParam().dtypes) {
    const Graph graph = make_graph(GetParam(), dtype);
    const auto watched = [&](const Graph& planned, const Op& op, const AddressOf& address,
                             const BoundCall& call) {
      gpu::emulated::watch(operands(planned, op, address));
      call();
      EXPECT_THAT(gpu::emulated::findings(), IsEmpty()) << print_op(planned, op);
    };
    for (const CardFacts& card : cards_for(graph))
      run_emulated(graph, make_values(graph, GetParam()), gpu::emulated::Order::forward, std::nullopt,
                   watched, card);
  }
}

// Each access is watched, so that minutes go into large cases; the emulated card runs them in three orders
// all the same.
std::vector<OpCase> watched_cases() {
  std::vector<OpCase> cases = gpu_cases();
  check_internal(std::erase_if(cases, runs_code_of_others) == std::size(kCodeOfOthers),
                 "a case that there is not");
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, GpuChecked, ::testing::ValuesIn(watched_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace plimsoll::harness
