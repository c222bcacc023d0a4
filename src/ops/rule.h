// The interface of an op's rule: shapes, gradient, cost, scratch, and which operands may share storage.
//
// The rule is the only authority on an op; kernels (ops/*_cpu.cc) obey it. One file per op family holds its
// rules; rule_of() finds them by kind. Nothing here knows a backend.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/description.h"
#include "graph/graph.h"

namespace plimsoll {

// An output of an op: what a new tensor for it looks like. The name is the op's base name plus `suffix`.
struct OutputSpec {
  std::string suffix;
  Shape shape;
  DType dtype = DType::f32;
};

// Work of one op, for the time prediction: floating-point operations of matrix kind, and bytes that have to
// move.
struct Cost {
  double flops = 0;
  double bytes = 0;
};

// The cost of recomputing an op's outputs, and their place in a block; activation checkpointing chooses by
// it.
enum class RecomputeClass : uint8_t {
  cheap,    // no matrix product
  gate,     // cheap; the MLP's product of gate and values, its widest tensor
  sum,      // cheap; a residual sum, or one of gradients
  product,  // of matrices
  mixer     // mixes tokens (attention): dear to make again, and no wider than what it reads
};

// The queue that runs an op. Fetches and stores are complete only after the matching wait.
enum class Queue : uint8_t { compute, copy_in, copy_out };

// A matrix product of an op. One that adds to what C holds reads it once more.
struct Product {
  MatmulShape shape;
  bool adds = false;
  // Its dimension along the rows of the op's axis, where the kernel stops at those that are live; none: it
  // takes all.
  int64_t MatmulShape::*live = nullptr;
};

// The part of an op's seconds that gets shorter with the live rows of its axis.
enum class Shortens : uint8_t {
  products,  // its matrix products, where they say so; the rest walks the whole capacity
  rows,      // all of it, with the rows
  targets,   // all of it, with the rows that have a label
  pairs      // attention: with the rows, and with the keys that each meets
};

// The parts of an op's seconds: matrix products, by their measured rates, and other work at the rate that the
// op's own curve gives.
struct Work {
  std::vector<Product> products;  // of `rows_at_a_time` rows, done for all `rows`
  int64_t rows = 1, rows_at_a_time = 1;
  double amount = 0;         // bytes; FLOPs where `arithmetic`
  double at = 0;             // where to read the curve
  DType dtype = DType::f32;  // what the kernel is chosen by
  int64_t head_dim = 0;
  bool arithmetic = false;
  // The curve of a kernel that GPUs have for some ops of the kind: its name, read if a device has it instead
  // of the kind's.
  std::string_view curve = {};
  // The amount stands for all of the op, where the device has a curve of it: the products are not added to
  // it, and are what it takes on a device without a curve.
  bool all_by_curve = false;
};

// Output `output` may take over the storage of input `input` where that input dies at this op. Kernels of
// such ops accept both forms: in place, and apart.
struct Reuse {
  size_t output;
  size_t input;
};

// Operands whose rows are not of the op's own axis, but of that which the attribute names, where it is there.
struct OtherAxis {
  const char* attribute = nullptr;
  std::vector<size_t> inputs = {}, outputs = {};
};

// The queries and actions of a gradient rule; autodiff/ implements it.
class GradientContext {
 public:
  virtual ~GradientContext() = default;
  [[nodiscard]] virtual const Graph& graph() const = 0;
  // Gradient that arrived for an output of the op (kNoTensor: none did).
  [[nodiscard]] virtual TensorId gradient_of(TensorId output) const = 0;
  // Returns true if an input leads to a trainable tensor.
  [[nodiscard]] virtual bool wants(TensorId input) const = 0;
  // The sum of the gradients that other consumers of `input` gave so far, for ops that add into it
  // (kNoTensor: none).
  [[nodiscard]] virtual TensorId partial(TensorId input) const = 0;
  // States the whole gradient of `input`, the partial sum included.
  virtual void set_gradient(TensorId input, TensorId gradient) = 0;
  // Adds one consumer's gradient (emits an add op when there is a partial sum).
  virtual void add_gradient(TensorId input, TensorId gradient) = 0;
  // The persistent gradient tensor of a trainable weight, and the attribute that says how to write it: 0 for
  // the first writer of a program (overwrite in the first micro-step, add later), 1 for the others (always
  // add).
  struct WeightGradient {
    TensorId tensor;
    int64_t accumulate;
  };
  virtual WeightGradient weight_gradient(TensorId weight) = 0;
  // The step-values tensor of the graph.
  [[nodiscard]] virtual TensorId step() const = 0;
  // Appends a backward op in the scope of the op at hand; returns its outputs. `outputs`: see plimsoll::emit.
  virtual Operands emit(OpKind kind, Operands inputs, Attrs attrs, Operands outputs,
                        const std::string& base_name) = 0;
};

struct OpRule {
  OpKind kind;
  // Shapes and types of all outputs, checked against the inputs; throws InternalError with the reason.
  std::vector<OutputSpec> (*infer)(const Graph&, const Op&);
  // Emits the ops of the gradient; nullptr: not differentiable.
  void (*gradient)(GradientContext&, const Op&) = nullptr;
  Cost (*cost)(const Graph&, const Op&) = nullptr;  // nullptr: bytes of the inputs and outputs, no FLOPs
  Work (*work)(const Graph&,
               const Op&) = nullptr;  // nullptr: the cost's bytes, of the largest operand's type
  // Workspace in bytes; nullptr: none.
  int64_t (*scratch_bytes)(const Graph&, const Op&, const DeviceDescription&) = nullptr;
  // The same for the kernels of GPUs.
  int64_t (*gpu_scratch_bytes)(const Graph&, const Op&, const DeviceDescription&) = nullptr;
  std::vector<Reuse> reuse = {};
  OtherAxis other_axis = {};
  // The number of kernels that a call launches on a GPU; nullptr: one. `library`: at the most, if a library
  // may compute products: what is added to one is brought first, and a sum in parts is put together behind
  // it. The op harness holds every kernel to it.
  int64_t (*launches)(const Graph&, const Op&, bool library) = nullptr;
  // Outputs that exist already are read and updated in place: an activation may be written by such an op
  // again.
  bool updates = false;
  // True if the op may leave its outputs as they were, by what it finds when it runs: an update of gradients
  // that overflowed. Then an output that nothing else wrote may be read nowhere, not even to be stored;
  // verify() refuses that. nullptr: every output is written whenever the op runs.
  bool (*may_skip)(const Op&) = nullptr;
  // Attributes `first` and `elements` may restrict the op to a slice (ops/optimizer/optimizer.h).
  bool sliceable = false;
  Queue queue = Queue::compute;
  Shortens shortens = Shortens::products;
  RecomputeClass recompute = RecomputeClass::cheap;
  // Takes attribute `chunk` rows at a time: workspace and seconds go by it, and nothing else does.
  bool chunked = false;
  // The output is cheap to make and too large to keep: it never outlives the op that reads it, and
  // passes/recompute makes it anew for every reader. Its inputs are persistent.
  bool rematerialise = false;
  // The gradient op computes this op's outputs too and takes its place (fused loss).
  bool gradient_replaces = false;
};

const OpRule& rule_of(OpKind kind);
Cost cost_of(const Graph& graph, const Op& op);
Work work_of(const Graph& graph, const Op& op);
// Returns true if a run of the op may leave its outputs as they were.
inline bool may_skip(const Op& op) {
  const auto rule = rule_of(op.kind).may_skip;
  return rule != nullptr && rule(op);
}
// Returns true if the op only starts, and runs at the same time as others until its wait: a fetch or a store.
inline bool is_queued(const Op& op) { return rule_of(op.kind).queue != Queue::compute; }
// fetch, store and their waits: the runtime runs them, they have no compute kernel.
bool is_transfer(OpKind kind);
int64_t scratch_bytes_of(const Graph& graph, const Op& op, const DeviceDescription& device);
// The number of kernels that an op launches on a GPU, a transfer's copy included; and a program: what a graph
// of its calls has as nodes, and what a host has to launch without a graph.
int64_t gpu_launches(const Graph& graph, const Op& op, bool library);
int64_t gpu_launches(const Graph& program, bool library);

// Appends an op. `outputs` has one entry per output: kNewTensor (an activation is made, named base_name +
// suffix), kNoTensor (not wanted), or an existing tensor of the inferred shape.
inline constexpr TensorId kNewTensor = -2;
Operands emit(Graph& graph, Op op, const std::string& base_name);

// Every op against its rule, tensors written before they are read (persistent ones and inputs excepted; an op
// that may skip its work writes nothing for sure), and rows of the op's own axis.
// Throws InternalError with the op's text.
void verify(const Graph& graph);

// Launches of a product on a GPU: itself; what it is added to, and two parts of a library's (values to clear,
// parts to add up).
constexpr int64_t product_launches(bool library) { return library ? 4 : 1; }

// Shorthands that rules use.
const Tensor& input_tensor(const Graph& graph, const Op& op, size_t i);
// Element type of a weight's gradient in output `i`: that of the tensor that is there for it, else f32.
DType gradient_dtype(const Graph& graph, const Op& op, size_t i);
void require(bool condition, const Graph& graph, const Op& op, const char* why);

}  // namespace plimsoll
