#include "plan/time_model.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "ops/linear_cross_entropy_layout.h"
#include "ops/linear_products.h"
#include "ops/rule.h"
#include "ops/transfer.h"

namespace plimsoll {
namespace {

// The type of most of the bytes that an op touches: what its kernel is chosen by. Step values and sums, which
// are f64, say nothing of it, large as they are beside the smallest weights.
DType main_type(const Graph& graph, const Op& op) {
  const Tensor* largest = nullptr;
  const auto size = [&](const Tensor& tensor) { return tensor.dtype == DType::f64 ? 0 : tensor.bytes(); };
  for (const auto* ids : {&op.inputs, &op.outputs})
    for (const TensorId id : *ids)
      if (id != kNoTensor && (largest == nullptr || size(graph.tensor(id)) > size(*largest)))
        largest = &graph.tensor(id);
  return largest == nullptr ? DType::f32 : largest->dtype;
}

// A product that adds to what C holds reads it once more.
double product_seconds(const MatmulShape& shape, bool adds, const DeviceRates& rates) {
  const auto c_bytes = static_cast<double>(shape.m * shape.n * size_of(shape.c));
  return matmul_seconds(rates, shape) + (adds ? c_bytes / rates.bandwidth : 0.0);
}

double head_products_seconds(const Graph& graph, const Op& op, const DeviceRates& rates) {
  const CrossEntropyProducts products = cross_entropy_products(graph, op);
  double seconds = matmul_seconds(rates, products.logits);
  if (products.d_x) seconds += matmul_seconds(rates, *products.d_x);
  if (products.d_w) seconds += product_seconds(*products.d_w, true, rates);
  const auto rows = static_cast<double>(input_tensor(graph, op, 0).shape[0]);
  return seconds * rows / static_cast<double>(products.logits.m);
}

// The softmax reads the logits twice and writes them once.
OpWork head_work(const Graph& graph, const Op& op, const DeviceRates& rates) {
  const Tensor& x = input_tensor(graph, op, 0);
  const int64_t logits = x.shape[0] * input_tensor(graph, op, 1).shape[0];
  const auto bytes = static_cast<double>(3 * logits * size_of(x.dtype));
  return {.products = head_products_seconds(graph, op, rates), .work = bytes, .at = bytes, .dtype = x.dtype};
}

OpWork attention_work(const Graph& graph, const Op& op) {
  return {.work = cost_of(graph, op).flops,
          .at = static_cast<double>(op.attr_int("length")),
          .dtype = input_tensor(graph, op, 0).dtype,
          .head_dim = op.attr_int("head_dim"),
          .arithmetic = true};
}

// What is known of an op without a curve.
double rate_without_curve(const OpWork& work, const DeviceRates& rates) {
  if (!work.arithmetic) return rates.bandwidth;
  return work.dtype == DType::bf16 ? rates.matmul_bf16 : rates.matmul_f32;
}

// Bytes of a transfer over the slower of its two ends: the I/O queue copies in host memory, or moves a file.
double transfer_seconds(const Graph& graph, const Op& op, const DeviceRates& rates) {
  const bool fetch = op.kind == OpKind::fetch;
  const Space home = graph.tensor(fetch ? op.inputs[0] : op.outputs[0]).space;
  const double file_rate = fetch ? rates.disk_read : rates.disk_write;
  return cost_of(graph, op).bytes / (home == Space::disk ? file_rate : rates.host_copy);
}

// Mixes one number into a hash: the finalizer of splitmix64, so that small numbers spread over all bits.
void mix(uint64_t& hash, uint64_t value) {
  uint64_t x = hash + 0x9E3779B97F4A7C15U + value;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
  hash = x ^ (x >> 31U);
}

void mix_tensor(uint64_t& hash, const Graph& graph, TensorId id) {
  if (id == kNoTensor) return mix(hash, ~uint64_t{0});
  const Tensor& tensor = graph.tensor(id);
  mix(hash, static_cast<uint64_t>(tensor.dtype) << 8U | static_cast<uint64_t>(tensor.space));
  for (const int64_t dim : tensor.shape.dims()) mix(hash, static_cast<uint64_t>(dim));
}

// What an op's seconds depend on. Where a slice begins is no part of it.
uint64_t signature(const Graph& graph, const Op& op) {
  auto hash = static_cast<uint64_t>(op.kind);
  for (const TensorId id : op.inputs) mix_tensor(hash, graph, id);
  for (const TensorId id : op.outputs) mix_tensor(hash, graph, id);
  for (const auto& [name, value] : op.attrs) {
    const auto* number = std::get_if<int64_t>(&value);
    if (number != nullptr && name != "first") mix(hash, static_cast<uint64_t>(*number));
  }
  return hash;
}

}  // namespace

OpWork work_of(const Graph& graph, const Op& op, const DeviceRates& rates) {
  switch (op.kind) {
    case OpKind::linear:
      return {.products = product_seconds(linear_product(graph, op), op.has_input(3), rates)};
    case OpKind::linear_dx:
      return {.products = product_seconds(linear_dx_product(graph, op), op.has_input(2), rates)};
    case OpKind::linear_dw:
      return {.products = product_seconds(linear_dw_product(graph, op), true, rates)};
    case OpKind::linear_cross_entropy:
    case OpKind::linear_cross_entropy_grad:
      return head_work(graph, op, rates);
    case OpKind::attention:
    case OpKind::attention_grad:
      return attention_work(graph, op);
    default: {
      const double bytes = cost_of(graph, op).bytes;
      return {.work = bytes, .at = bytes, .dtype = main_type(graph, op)};
    }
  }
}

Bound bound_of(const Graph& graph, const Op& op, const DeviceRates& rates) {
  const Cost cost = cost_of(graph, op);
  const bool bf16 = cost.flops > 0 && input_tensor(graph, op, 0).dtype == DType::bf16;
  const double arithmetic = cost.flops / (bf16 ? rates.matmul_bf16 : rates.matmul_f32);
  const double memory = cost.bytes / rates.bandwidth;
  return {cost.flops, cost.bytes, std::max(arithmetic, memory), arithmetic > memory};
}

double op_seconds(const Graph& graph, const Op& op, const DeviceRates& rates) {
  if (rule_of(op.kind).io) return transfer_seconds(graph, op, rates);
  if (is_transfer(op.kind)) return 0.0;
  const OpWork work = work_of(graph, op, rates);
  if (work.work == 0) return std::max(rates.op_overhead, work.products);
  const RateCurve* curve = find_curve(rates, to_string(op.kind), work.dtype, work.head_dim);
  const double rate = curve == nullptr ? rate_without_curve(work, rates) : rate_at(*curve, work.at);
  return std::max(rates.op_overhead, work.products + work.work / rate);
}

double contention_seconds(const Graph& graph, const Op& op, const DeviceRates& rates) {
  return cost_of(graph, op).bytes / rates.bandwidth;
}

double TimeModel::seconds_of(const Graph& graph, const Op& op) {
  const auto [entry, is_new] = known_.try_emplace(signature(graph, op), 0.0);
  if (is_new) entry->second = op_seconds(graph, op, rates_);
  return entry->second;
}

void Queues::take(const Op& op, double seconds, double contention) {
  if (rule_of(op.kind).io) {
    io = std::max(io, compute) + seconds;
    compute += contention;
    complete_[op.kind == OpKind::fetch ? op.outputs[0] : op.inputs[0]] = io;
  } else if (is_transfer(op.kind)) {
    if (const auto copy = complete_.find(op.inputs[0]); copy != complete_.end())
      compute = std::max(compute, copy->second);
  } else {
    compute += seconds;
  }
}

double Queues::end() const { return std::max(compute, io); }

double TimeModel::program_seconds(const Graph& graph) {
  Queues queues;
  for (const Op& op : graph.ops()) {
    const bool io = rule_of(op.kind).io;
    queues.take(op, seconds_of(graph, op), io ? contention_seconds(graph, op, rates_) : 0.0);
  }
  return queues.end();
}

int64_t disk_bytes_of(const Graph& graph, const Op& op) {
  if (!rule_of(op.kind).io || graph.tensor(home_of(op)).space != Space::disk) return 0;
  return graph.tensor(op.kind == OpKind::fetch ? op.outputs[0] : op.inputs[0]).bytes();
}

int64_t runs_per_step(const Graph& program, const Variant& variant) {
  if (program.name() == kTrainProgram) return variant.accumulation;
  return program.name() == kUpdateProgram ? 1 : 0;
}

double TimeModel::step_seconds(const std::vector<Graph>& programs, const Variant& variant) {
  double seconds = 0;
  for (const Graph& graph : programs) {
    const int64_t runs = runs_per_step(graph, variant);
    if (runs > 0) seconds += program_seconds(graph) * static_cast<double>(runs);
  }
  return seconds;
}

int64_t disk_traffic(const std::vector<Graph>& programs, const Variant& variant) {
  int64_t bytes = 0;
  for (const Graph& graph : programs)
    for (const Op& op : graph.ops()) bytes += runs_per_step(graph, variant) * disk_bytes_of(graph, op);
  return bytes;
}

double predict_step_seconds(const std::vector<Graph>& programs, const Variant& variant,
                            const DeviceRates& rates) {
  return TimeModel(rates).step_seconds(programs, variant);
}

}  // namespace plimsoll
