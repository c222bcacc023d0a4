// Products by a library: the cases of all ops that have products, computed by a cuBLASLt of plain loops
// (tests/fake_cublas_lt.cc) on the emulated card.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>

#include "gpu/cublas_lt.h"
#include "graph/op_kind.h"
#include "harness/gpu_harness.h"
#include "harness/reference.h"

namespace plimsoll::harness {
namespace {

using gpu::emulated::Order;
using ::testing::IsEmpty;

std::vector<OpCase> cases_with_products() {
  std::vector<OpCase> cases;
  for (const OpCase& c : gpu_cases())
    if (has_products(make_graph(c, c.dtypes.front()).ops().back().kind)) cases.push_back(c);
  return cases;
}

gpu::OpenedLibrary open_fake() {
  return gpu::open_cublas_lt([](const char* name) {
    return std::string_view(name) == "PLIMSOLL_CUBLASLT" ? PLIMSOLL_FAKE_CUBLASLT : nullptr;
  });
}

// The number of products that it has computed.
long computed() {
  void* const library = dlopen(PLIMSOLL_FAKE_CUBLASLT, RTLD_NOW);
  return reinterpret_cast<long (*)()>(dlsym(library, "fake_cublas_lt_products"))();
}

class GpuLibrary : public ::testing::TestWithParam<OpCase> {
 protected:
  ~GpuLibrary() override { unsetenv("FAKE_CUBLASLT"); }

  OpRun run(const Graph& graph, const std::vector<Values>& values,
            std::optional<Sharing> sharing = std::nullopt) {
    return run_emulated(graph, values, Order::forward, sharing, {}, {}, opened_.library.get());
  }
  static void expect_reference(const Graph& graph, const std::vector<Values>& values, DType dtype,
                               const OpRun& run) {
    std::vector<Values> want = values;
    run_reference(graph, want, true);
    EXPECT_THAT(run.faults, IsEmpty());
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(
          compare(graph.tensors()[i].name, run.values[i], want[i], tolerance_of(dtype, GetParam().slack)),
          "");
  }

  gpu::OpenedLibrary opened_ = open_fake();
};

TEST_P(GpuLibrary, products_agree_with_the_reference_and_none_is_refused) {
  for (const DType dtype : gpu_dtypes(GetParam())) {
    SCOPED_TRACE(to_string(dtype));
    const Graph graph = make_graph(GetParam(), dtype);
    const std::vector<Values> values = make_values(graph, GetParam());
    expect_reference(graph, values, dtype, run(graph, values));
  }
  EXPECT_GT(opened_.library->use.requested, 0);
  EXPECT_EQ(opened_.library->use.refused, 0);
  EXPECT_EQ(opened_.library->use.refused_runs, 0);
}

TEST_P(GpuLibrary, in_place_gives_the_bits_of_apart) {
  for (const DType dtype : GetParam().dtypes) {
    const Graph graph = make_graph(GetParam(), dtype);
    const std::vector<Values> values = make_values(graph, GetParam());
    for (const Sharing& sharing : sharings(graph)) {
      SCOPED_TRACE(to_string(dtype));
      const OpRun shared = run(graph, values, sharing);
      EXPECT_THAT(shared.faults, IsEmpty());
      expect_same_bits(graph, graph.ops()[sharing.op], run(graph, values), shared);
    }
  }
}

// At the start, or for a number of rows: the bits are those of the kernels here.
TEST_P(GpuLibrary, what_is_refused_is_computed_by_own_kernels) {
  for (const char* refuses : {"knows=none", "rows=1000000"})
    for (const DType dtype : GetParam().dtypes) {
      SCOPED_TRACE(refuses);
      setenv("FAKE_CUBLASLT", refuses, 1);
      const Graph graph = make_graph(GetParam(), dtype);
      const std::vector<Values> values = make_values(graph, GetParam());
      const OpRun own = run_emulated(graph, values, Order::forward);
      expect_same_bits(graph, graph.ops().back(), own, run(graph, values));
    }
  EXPECT_GT(opened_.library->use.refused, 0);
  const int64_t refused = opened_.library->use.refused_runs;
  const long before = computed();
  unsetenv("FAKE_CUBLASLT");
  for (const DType dtype : GetParam().dtypes) {
    const Graph graph = make_graph(GetParam(), dtype);
    run(graph, make_values(graph, GetParam()));
  }
  EXPECT_EQ(refused, computed() - before);  // none, where no row has a label
}

INSTANTIATE_TEST_SUITE_P(All, GpuLibrary, ::testing::ValuesIn(cases_with_products()),
                         [](const auto& info) { return info.param.name; });

// The number of live rows is not known then.
TEST(GpuLibraryWithout, what_the_host_does_not_keep_of_its_inputs_leaves_products_to_own_kernels) {
  for (const OpCase& c : cases_with_products()) {
    SCOPED_TRACE(c.name);
    const gpu::OpenedLibrary opened = open_fake();
    const Graph graph = make_graph(c, DType::f32);
    const Op& op = graph.ops().back();
    gpu::Stream stream;
    alignas(64) static std::byte memory[64];
    bind_gpu(
        GpuBinding(graph, op, {}, stream, [](TensorId) { return memory; }, {opened.library.get(), nullptr}));
    const bool needs_rows = op.kind != OpKind::linear && op.kind != OpKind::linear_dx;
    const bool counts_rows = needs_rows || std::any_of(op.inputs.begin(), op.inputs.end(), [&](TensorId id) {
                               return id != kNoTensor && graph.tensor(id).name == kStepTensor;
                             });
    EXPECT_GT(opened.library->use.requested, 0);
    EXPECT_EQ(opened.library->use.refused, counts_rows ? opened.library->use.requested : 0);
  }
}

}  // namespace
}  // namespace plimsoll::harness
