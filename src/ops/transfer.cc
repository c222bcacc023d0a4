// fetch and store move bytes between the device and a tensor's home on the host or on disk. Each starts on
// the I/O queue; its wait is the point from which the copy may be read (fetch) or written again (store).
// Transfers of one program complete in the order in which they start, so that a fetch sees what an earlier
// store wrote.
#include "ops/rules.h"

namespace plimsoll {
namespace {

// home -> copy: the whole home, or `elements` of it from `first` on (both counted in elements).
std::vector<OutputSpec> infer_fetch(const Graph& g, const Op& op) {
  const Tensor& home = input_tensor(g, op, 0);
  const int64_t first = op.attr_int("first");
  const int64_t elements = op.attr_int("elements");
  require(first >= 0 && elements > 0 && first + elements <= home.shape.elements(), g, op, "fetch: range");
  require(home.space != Space::device, g, op, "fetch: the home is on the device");
  return {{"", elements == home.shape.elements() ? home.shape : Shape{elements}, home.dtype}};
}

// copy -> home: the whole home, or its elements from `first` on.
std::vector<OutputSpec> infer_store(const Graph& g, const Op& op) {
  const Tensor& copy = input_tensor(g, op, 0);
  if (op.outputs[0] < 0) return {{"", copy.shape, copy.dtype}};
  const Tensor& home = g.tensor(op.outputs[0]);
  const int64_t first = op.attr_int("first");
  require(home.dtype == copy.dtype, g, op, "store: types differ");
  require(first >= 0 && first + copy.shape.elements() <= home.shape.elements(), g, op, "store: range");
  return {{"", home.shape, home.dtype}};
}

std::vector<OutputSpec> infer_wait(const Graph& g, const Op& op) {
  const Tensor& copy = input_tensor(g, op, 0);
  require(op.outputs[0] == op.inputs[0], g, op, "a wait names its copy twice");
  return {{"", copy.shape, copy.dtype}};
}

Cost cost_of_copy(const Graph& g, TensorId copy) { return {0, static_cast<double>(g.tensor(copy).bytes())}; }
Cost cost_fetch(const Graph& g, const Op& op) { return cost_of_copy(g, op.outputs[0]); }
Cost cost_store(const Graph& g, const Op& op) { return cost_of_copy(g, op.inputs[0]); }
Cost cost_wait(const Graph&, const Op&) { return {}; }

}  // namespace

const OpRule fetch_rule{.kind = OpKind::fetch, .infer = infer_fetch, .cost = cost_fetch, .io = true};
const OpRule store_rule{
    .kind = OpKind::store, .infer = infer_store, .cost = cost_store, .updates = true, .io = true};
const OpRule fetch_wait_rule{
    .kind = OpKind::fetch_wait, .infer = infer_wait, .cost = cost_wait, .updates = true};
const OpRule store_wait_rule{
    .kind = OpKind::store_wait, .infer = infer_wait, .cost = cost_wait, .updates = true};

}  // namespace plimsoll
