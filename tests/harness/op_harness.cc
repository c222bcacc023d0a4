#include "harness/op_harness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>

#include "base/error.h"
#include "cpu/describe.h"
#include "cpu/isa.h"
#include "ops/kernel_test_util.h"
#include "passes/train.h"
#include "tensor/f16.h"

namespace plimsoll::harness {
namespace {

constexpr size_t kAlignment = 64;
// Read as a number it is NaN, so that a read of a guard or of fresh workspace shows in the results.
constexpr std::byte kFill{0xFF};

std::vector<OpCase>& registry() {
  static std::vector<OpCase> cases;
  return cases;
}

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

std::string replaced(std::string text, const std::string& with) {
  for (size_t at = text.find('%'); at != std::string::npos; at = text.find('%', at))
    text.replace(at, 1, with);
  return text;
}

// Unless the case says otherwise all rows of the op's first input are live.
Values step_values(const Graph& graph, const OpCase& c) {
  Values values(kNumStepValues);
  const auto set = [&](StepValue which, double value) { values[static_cast<size_t>(which)] = value; };
  set(StepValue::first_micro_step, 1);
  set(StepValue::loss_scale, 0.25);
  set(StepValue::learning_rate, 0.01);
  set(StepValue::optimizer_step, 3);
  set(StepValue::seed_low, 7);
  set(StepValue::seed_high, 1);
  set(StepValue::live_tokens, static_cast<double>(graph.tensor(graph.ops().front().inputs.front()).shape[0]));
  for (const auto& [which, value] : c.step) set(which, value);
  if (c.axis != kFirstAxis) {
    // The first axis has no rows at all: who looks there sees it.
    for (const auto& slot : {live_tokens_of, live_sequences_of}) {
      double& first = values[static_cast<size_t>(slot(kFirstAxis))];
      set(slot(c.axis), std::exchange(first, 0.0));
    }
  }
  return values;
}

bool is_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f64;
}

void store(std::byte* at, DType dtype, double x) {
  const auto put = [&](auto value) { std::memcpy(at, &value, sizeof(value)); };
  if (dtype == DType::f64) return put(x);
  if (dtype == DType::f32) return put(static_cast<float>(x));
  if (dtype == DType::bf16) return put(kernel_test::from_double<uint16_t>(x));
  if (dtype == DType::f16) return put(f16_from_f32(static_cast<float>(x)));
  if (dtype == DType::u8) return put(static_cast<uint8_t>(x));
  if (dtype == DType::i8) return put(static_cast<int8_t>(x));
  check_internal(dtype == DType::i32, "harness: an element type without values");
  put(static_cast<int32_t>(x));
}

template <class T>
T read(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}
double fetch(const std::byte* at, DType dtype) {
  if (dtype == DType::f64) return read<double>(at);
  if (dtype == DType::f32) return static_cast<double>(read<float>(at));
  if (dtype == DType::bf16) return kernel_test::to_double(read<uint16_t>(at));
  if (dtype == DType::f16) return static_cast<double>(f32_from_f16(read<uint16_t>(at)));
  if (dtype == DType::u8) return static_cast<double>(read<uint8_t>(at));
  if (dtype == DType::i8) return static_cast<double>(read<int8_t>(at));
  return static_cast<double>(read<int32_t>(at));
}

// Tensors in one buffer, each with guard bytes before and behind it.
class GuardedArena {
 public:
  GuardedArena(const Graph& graph, const std::vector<int>& storage) : graph_(graph), storage_(storage) {
    size_t end = kGuard;
    for (size_t i = 0; i < graph.tensors().size(); ++i) {
      offsets_.push_back(end);
      if (storage[i] != static_cast<int>(i)) continue;
      end += aligned(static_cast<size_t>(graph.tensors()[i].bytes())) + kGuard;
    }
    memory_.resize(end + kAlignment, kFill);
    base_ =
        memory_.data() + (kAlignment - reinterpret_cast<uintptr_t>(memory_.data()) % kAlignment) % kAlignment;
  }

  std::byte* at(TensorId id) {
    return base_ + offsets_[static_cast<size_t>(storage_[static_cast<size_t>(id)])];
  }
  std::vector<std::byte> bytes(TensorId id) { return {at(id), at(id) + graph_.tensor(id).bytes()}; }
  void write(TensorId id, const Values& values) {
    const DType dtype = graph_.tensor(id).dtype;
    for (size_t i = 0; i < values.size(); ++i)
      store(at(id) + i * static_cast<size_t>(size_of(dtype)), dtype, values[i]);
  }
  Values values(TensorId id) {
    const Tensor& tensor = graph_.tensor(id);
    Values result(static_cast<size_t>(tensor.shape.elements()));
    for (size_t i = 0; i < result.size(); ++i)
      result[i] = fetch(at(id) + i * static_cast<size_t>(size_of(tensor.dtype)), tensor.dtype);
    return result;
  }
  // Bytes around the tensor, from its end to the next one's start included.
  bool guards_intact(TensorId id) {
    const auto size = static_cast<size_t>(graph_.tensor(id).bytes());
    const std::byte* const begin = at(id);
    const auto is_fill = [](std::byte b) { return b == kFill; };
    return std::all_of(begin - kGuard, begin, is_fill) &&
           std::all_of(begin + size, begin + aligned(size) + kGuard, is_fill);
  }

 private:
  const Graph& graph_;
  std::vector<int> storage_;
  std::vector<size_t> offsets_;
  std::vector<std::byte> memory_;
  std::byte* base_ = nullptr;
};

std::vector<bool> find_written(const Graph& graph) {
  std::vector<bool> written(graph.tensors().size());
  for (const Op& op : graph.ops()) {
    for (const TensorId id : op.outputs)
      if (id != kNoTensor) written[static_cast<size_t>(id)] = true;
    if (op.scratch != kNoTensor) written[static_cast<size_t>(op.scratch)] = true;
  }
  return written;
}

}  // namespace

bool register_cases(std::vector<OpCase> cases) {
  for (OpCase& c : cases) registry().push_back(std::move(c));
  return true;
}
const std::vector<OpCase>& all_cases() { return registry(); }

std::vector<Isa> isas_here() {
  std::vector<Isa> isas;
  for (const Isa isa : {Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx})
    if (isa <= detect_isa()) isas.push_back(isa);
  return isas;
}

Graph make_graph(const OpCase& c, DType dtype) {
  Graph graph = parse_graph("graph " + c.name + "\ntensor step f64[16] input\n" +
                            replaced(c.body, std::string(to_string(dtype))));
  while (c.axis >= static_cast<AxisId>(graph.axes().size()))
    graph.add_axis("axis" + std::to_string(graph.axes().size()));
  for (Op& op : graph.ops()) op.axis = c.axis;
  verify(graph);
  return graph;
}

double rounded(double x, DType dtype) {
  if (dtype == DType::f32) return static_cast<double>(static_cast<float>(x));
  if (dtype == DType::bf16) return kernel_test::to_double(kernel_test::from_double<uint16_t>(x));
  if (dtype == DType::f16) return static_cast<double>(f32_from_f16(f16_from_f32(static_cast<float>(x))));
  return x;
}

std::vector<Values> make_values(const Graph& graph, const OpCase& c) {
  std::mt19937 generator(20240611);
  std::normal_distribution<double> normal;
  std::vector<Values> values;
  for (const Tensor& tensor : graph.tensors()) {
    Values one(static_cast<size_t>(tensor.shape.elements()));
    if (tensor.name == kStepTensor) {
      one = step_values(graph, c);
    } else if (const auto given = c.given.find(tensor.name); given != c.given.end()) {
      check_internal(given->second.size() == one.size(),
                     "harness: wrong number of values for " + tensor.name);
      one = given->second;
    } else {
      check_internal(is_float(tensor.dtype), "harness: no values given for " + tensor.name);
      for (double& x : one) x = normal(generator);
    }
    for (double& x : one) x = rounded(x, tensor.dtype);
    values.push_back(std::move(one));
  }
  return values;
}

std::vector<Sharing> sharings(const Graph& graph) {
  const size_t last = graph.ops().size() - 1;
  const Op& op = graph.ops()[last];
  std::vector<Sharing> found;
  const auto bytes = [&](TensorId id) { return graph.tensor(id).bytes(); };
  for (const Reuse& reuse : rule_of(op.kind).reuse)
    if (op.has_input(reuse.input) && op.has_output(reuse.output) &&
        bytes(op.inputs[reuse.input]) == bytes(op.outputs[reuse.output]))  // as the layout has it
      found.push_back({last, reuse});
  return found;
}

OpRun run_ops(const Graph& graph, const std::vector<Values>& values, const DeviceDescription& device,
              const std::function<void(const Graph&, const Op&, const AddressOf&)>& run_op,
              std::optional<Sharing> sharing) {
  const Graph planned = assign_scratch(graph, device);
  std::vector<int> storage(planned.tensors().size());
  for (size_t i = 0; i < storage.size(); ++i) storage[i] = static_cast<int>(i);
  if (sharing) {
    const Op& op = planned.ops()[sharing->op];
    storage[static_cast<size_t>(op.output(static_cast<size_t>(sharing->reuse.output)))] =
        op.input(static_cast<size_t>(sharing->reuse.input));
  }
  GuardedArena arena(planned, storage);
  std::vector<bool> written = find_written(planned);
  if (sharing)
    for (size_t i = 0; i < storage.size(); ++i)
      if (storage[i] != static_cast<int>(i)) written[static_cast<size_t>(storage[i])] = true;
  for (size_t i = 0; i < values.size(); ++i)
    if (storage[i] == static_cast<int>(i)) arena.write(static_cast<TensorId>(i), values[i]);
  std::vector<std::vector<std::byte>> before;
  for (size_t i = 0; i < storage.size(); ++i) before.push_back(arena.bytes(static_cast<TensorId>(i)));
  for (const Op& op : planned.ops()) run_op(planned, op, [&](TensorId id) { return arena.at(id); });

  OpRun run;
  for (size_t i = 0; i < storage.size(); ++i) {
    const auto id = static_cast<TensorId>(i);
    const std::string& name = planned.tensor(id).name;
    if (!arena.guards_intact(id)) run.faults.push_back("bytes around " + name + " were written");
    if (!written[i] && arena.bytes(id) != before[i]) run.faults.push_back("input " + name + " was written");
    if (i >= values.size()) continue;  // scratch
    run.bytes.push_back(arena.bytes(id));
    run.values.push_back(arena.values(id));
  }
  return run;
}

OpRun run_cpu(const Graph& graph, const std::vector<Values>& values, const CpuSettings& settings,
              std::optional<Sharing> sharing) {
  return run_ops(
      graph, values, describe_cpu(settings.isa, settings.threads),
      [&](const Graph& planned, const Op& op, const AddressOf& address) {
        bind_cpu(CpuBinding(planned, op, settings, address))();
      },
      sharing);
}

void expect_nothing_changed(const Graph& graph, const std::vector<Values>& given, const OpRun& run) {
  for (size_t i = 0; i < given.size(); ++i) {
    if (graph.tensors()[i].role == Role::metric) continue;
    EXPECT_EQ(run.values[i], given[i]) << graph.tensors()[i].name;
  }
}

void expect_same_bits(const Graph& graph, const Op& op, const OpRun& a, const OpRun& b) {
  for (const TensorId id : op.outputs) {
    if (id == kNoTensor) continue;
    EXPECT_TRUE(a.bytes[static_cast<size_t>(id)] == b.bytes[static_cast<size_t>(id)])
        << graph.tensor(id).name;
  }
}

// bf16: half a unit in the last place of the result (2^-9), and as much again of each of a few roundings in
// between; f16 (2^-12) twice that. f32: sums of a few hundred terms.
Tolerance tolerance_of(DType dtype, double slack) {
  if (dtype == DType::bf16) return {slack * 0x1p-8, slack * 0x1p-8};
  if (dtype == DType::f16) return {slack * 0x1p-10, slack * 0x1p-10};
  return {slack * 1e-5, slack * 1e-5};
}

std::string compare(const std::string& name, const Values& got, const Values& want, Tolerance tolerance) {
  double squares = 0;
  for (const double x : want) squares += x * x;
  const double rms = std::sqrt(squares / static_cast<double>(std::max<size_t>(want.size(), 1)));
  for (size_t i = 0; i < want.size(); ++i) {
    const double allowed = tolerance.relative * std::abs(want[i]) + tolerance.absolute * rms;
    if (std::abs(got[i] - want[i]) <= allowed) continue;
    return name + "[" + std::to_string(i) + "] is " + std::to_string(got[i]) + ", should be " +
           std::to_string(want[i]) + " +- " + std::to_string(allowed);
  }
  return "";
}

}  // namespace plimsoll::harness
