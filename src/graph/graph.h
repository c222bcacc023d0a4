// A program as a value: tensors and the ops over them, in execution order.
//
// Tensors and ops are addressed by index. Activations are written once (SSA), but for ops that update in
// place (OpRule::updates); persistent tensors (weights, gradients, states, metrics) may be written by several
// ops, in order. Storage is decided later, by layout/.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/name.h"
#include "base/small_vector.h"
#include "tensor/tensor.h"

namespace plimsoll {

// Opaque here, so that a new kind compiles what names kinds anew and nothing else (graph/op_kind.h).
enum class OpKind : uint8_t;

using TensorId = int32_t;
inline constexpr TensorId kNoTensor = -1;

// A tensor's role in the run. Everything from `frozen_weight` to `metric` is persistent: it lives between
// programs. Inputs are written by the host before a program runs.
enum class Role : uint8_t {
  frozen_weight,
  trainable_weight,
  master,    // f32 copy of a trainable weight of lower precision
  gradient,  // of a trainable weight, over the whole effective batch
  optimizer_state,
  kv_cache,
  metric,  // sums that the host reads after a program
  input,
  activation,
  scratch
};
std::string_view to_string(Role role);
Role parse_role(std::string_view text);
bool is_persistent(Role role);

// The place of a tensor's bytes. Ops compute on device tensors (and on host tensors where the device reaches
// them, as the CPU does); bytes on disk only pass through fetch and store.
enum class Space : uint8_t { device, host, disk };
constexpr size_t index(Space space) { return static_cast<size_t>(space); }
std::string_view to_string(Space space);

// One of the units that a model repeats: a layer of a stack. Blocks of one kind compute the same with other
// weights; they are numbered in the order of the forward pass, through all stacks.
using BlockId = int32_t;
inline constexpr BlockId kNoBlock = -1;
struct BlockInfo {
  std::string name;  // "model.layers.3"
  std::string kind;  // what reports call one of them: "layer"

  friend bool operator==(const BlockInfo&, const BlockInfo&) = default;
};

// Blocks `first` to `first + count - 1`, all of one kind.
struct Stack {
  BlockId first = 0;
  int32_t count = 0;
};

// One of a program's token axes: the flat rows of one text of each sample (a decoder has one; an encoder and
// a decoder have two). Each has inputs of its own and its own number of live rows (ops/step_values.h); an op
// that works row by row works on the rows of its axis.
using AxisId = int32_t;
inline constexpr AxisId kFirstAxis = 0;
inline constexpr AxisId kMostAxes = 4;

// The source of a weight's values, which also decides which files it goes into.
enum class Origin : uint8_t {
  checkpoint,  // the model's folder
  derived,     // made with the weight that it belongs to: scales of a quantised one
  fresh,       // the checkpoint where it has it, else new: the head of a task
  adapter      // new, or an adapter's folder
};
// The initial values of a new weight.
enum class Initialiser : uint8_t {
  normal,
  zeros,
  ones,
  kaiming_uniform,
  row_norms  // the lengths of the rows of the weight that it belongs to
};
// A weight's part of the model. A head that is tied to the embedding is an embedding.
enum class WeightPart : uint8_t { body, embedding, head };
// The learning rate it trains with: LoRA+ has another one for the last part of an adapter.
enum class RateGroup : uint8_t { usual, adapter_out };
// The tensor of an adapter that it is, or the start of that tensor (Origin::derived).
enum class AdapterPart : uint8_t { none, a, b, embedding_a, embedding_b, magnitude };

// Facts about a weight, set by what makes it. Its master copy has them too.
struct ParameterInfo {
  Origin origin = Origin::checkpoint;
  Initialiser init = Initialiser::normal;
  WeightPart part = WeightPart::body;
  bool decays = true;  // by the optimizer's weight decay
  RateGroup rate = RateGroup::usual;
  AdapterPart adapter = AdapterPart::none;

  friend bool operator==(const ParameterInfo&, const ParameterInfo&) = default;
};

struct Tensor {
  Name name;  // parameters: as in the Hugging Face checkpoint; unique in a graph
  Shape shape;
  DType dtype = DType::f32;
  Role role = Role::activation;
  Space space = Space::device;
  BlockId block = kNoBlock;      // a gradient, state or copy is of its original's block
  ParameterInfo parameter = {};  // of weights and masters
  Name module = {};              // of an adapter's: the module that it adapts
  Shape whole = {};              // of a rank's piece: the shape of all pieces together; else empty
  [[nodiscard]] int64_t bytes() const { return shape.elements() * size_of(dtype); }
  [[nodiscard]] bool is_piece() const { return whole.rank() > 0; }
  [[nodiscard]] const Shape& whole_shape() const { return is_piece() ? whole : shape; }
};

// Attributes of an op: constants that its kernel is bound with. Ordered by name, so that text is stable.
using AttrValue = std::variant<int64_t, double, std::string>;
// A map in one piece of memory, which copies share until one of them changes: plans are made of programs by
// the hundred, of some 10,000 ops each.
class Attrs {
 public:
  using Entry = std::pair<std::string, AttrValue>;
  Attrs() = default;
  Attrs(std::initializer_list<Entry> entries);

  // The value of a name, added where it is absent.
  AttrValue& operator[](std::string_view name);
  // False, and nothing changed, where the name is there already.
  bool emplace(std::string name, AttrValue value);
  [[nodiscard]] std::vector<Entry>::const_iterator find(std::string_view name) const;
  [[nodiscard]] bool contains(std::string_view name) const { return find(name) != end(); }
  [[nodiscard]] bool empty() const { return begin() == end(); }
  [[nodiscard]] std::vector<Entry>::const_iterator begin() const { return entries().begin(); }
  [[nodiscard]] std::vector<Entry>::const_iterator end() const { return entries().end(); }
  bool operator==(const Attrs& other) const {
    return entries_ == other.entries_ || entries() == other.entries();
  }

 private:
  [[nodiscard]] const std::vector<Entry>& entries() const;
  std::vector<Entry>& own();                     // no other copy's
  std::shared_ptr<std::vector<Entry>> entries_;  // ascending by name; none: empty
};

enum class Stage : uint8_t { forward, backward, update };
std::string_view to_string(Stage stage);
Stage parse_stage(std::string_view text);

// Few, but for sums over all weights.
using Operands = SmallVector<TensorId, 6>;

struct Op {
  OpKind kind{};
  Operands inputs;   // kNoTensor where an optional input is absent
  Operands outputs;  // likewise
  Attrs attrs;
  Name scope;                 // the module it belongs to: "model.layers.3.mlp.down_proj"
  Name adapts;                // of an adapter's: the scope of what it adapts; else empty
  bool of_reference = false;  // computes the model as it began, next to the one that trains
  Stage stage = Stage::forward;
  TensorId scratch = kNoTensor;  // workspace, given by the last pass
  BlockId block = kNoBlock;
  AxisId axis = kFirstAxis;  // of the rows that it writes; of what sums over rows, of those that it reads

  [[nodiscard]] TensorId input(size_t i) const { return i < inputs.size() ? inputs[i] : kNoTensor; }
  [[nodiscard]] TensorId output(size_t i) const { return i < outputs.size() ? outputs[i] : kNoTensor; }
  [[nodiscard]] bool has_input(size_t i) const { return input(i) != kNoTensor; }
  [[nodiscard]] bool has_output(size_t i) const { return output(i) != kNoTensor; }
  // The attribute, which must exist with that type (else InternalError).
  [[nodiscard]] int64_t attr_int(std::string_view name) const;
  [[nodiscard]] double attr_float(std::string_view name) const;
  [[nodiscard]] std::string attr_text(std::string_view name) const;
};

class Graph {
 public:
  explicit Graph(std::string name = "") : name_(std::move(name)) {}

  [[nodiscard]] const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }
  [[nodiscard]] const std::vector<Tensor>& tensors() const { return tensors_; }
  [[nodiscard]] const Tensor& tensor(TensorId id) const { return tensors_[static_cast<size_t>(id)]; }
  [[nodiscard]] const std::vector<Op>& ops() const { return ops_; }
  [[nodiscard]] std::vector<Op>& ops() { return ops_; }

  [[nodiscard]] const std::vector<BlockInfo>& blocks() const { return blocks_; }
  // The programs of a run have the same blocks.
  void set_blocks(std::vector<BlockInfo> blocks) { blocks_ = std::move(blocks); }
  BlockId add_block(BlockInfo block);
  // Runs of blocks of one kind, in order.
  [[nodiscard]] std::vector<Stack> stacks() const;

  [[nodiscard]] const std::vector<std::string>& axes() const { return axes_; }
  // The programs of a run have the same axes.
  void set_axes(std::vector<std::string> names) { axes_ = std::move(names); }
  // Throws InternalError for more than kMostAxes.
  AxisId add_axis(std::string name);
  // The name of an input of an axis: "positions" of the first, "NAME.positions" of another.
  [[nodiscard]] std::string axis_input(AxisId axis, std::string_view input) const;

  // Names are unique: a second tensor of the same name is an InternalError.
  TensorId add_tensor(Tensor tensor);
  // Role, place and block may change (freeze, offload); name, shape and element type may not.
  void set_role(TensorId id, Role role) { tensors_[static_cast<size_t>(id)].role = role; }
  void set_space(TensorId id, Space space) { tensors_[static_cast<size_t>(id)].space = space; }
  void set_block(TensorId id, BlockId block) { tensors_[static_cast<size_t>(id)].block = block; }
  // kNoTensor where no tensor has the name.
  [[nodiscard]] TensorId find(std::string_view name) const;
  [[nodiscard]] bool contains(const Name& name) const;
  // `base`, or `base` with the first free suffix ".2", ".3", ...
  [[nodiscard]] Name fresh_name(const Name& base) const;

 private:
  std::string name_;
  std::vector<BlockInfo> blocks_;
  std::vector<std::string> axes_ = {"tokens"};
  std::vector<Tensor> tensors_;
  std::vector<Op> ops_;
  // Open addressing, twice as many places as tensors at least; kNoTensor: free.
  std::vector<TensorId> by_name_;
  void grow_index();
};

// Text form, stable and diffable: docs/reference/formats.md. parse_graph(print_graph(g)) prints the same text.
std::string print_graph(const Graph& graph);
std::string print_op(const Graph& graph, const Op& op);
// Throws UsageError with the line number.
Graph parse_graph(std::string_view text);

}  // namespace plimsoll
