#include "plan/program/time_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "graph/op_kind.h"
#include "ops/rule.h"
#include "ops/transfer.h"

namespace plimsoll {
namespace {

double product_seconds(const Product& product, const DeviceRates& rates) {
  const MatmulShape& shape = product.shape;
  const auto c_bytes = static_cast<double>(shape.m * shape.n * size_of(shape.c));
  return matmul_seconds(rates, shape) + (product.adds ? c_bytes / rates.bandwidth : 0.0);
}

// Bytes of a transfer over the slower of its two ends: the I/O queue copies in host memory, or moves a file.
double transfer_seconds(const Graph& graph, const Op& op, const DeviceRates& rates) {
  const bool fetch = rule_of(op.kind).queue == Queue::copy_in;
  const Space target = graph.tensor(offloaded_of(op)).space;
  const double file_rate = fetch ? rates.disk_read : rates.disk_write;
  return cost_of(graph, op).bytes / (target == Space::disk ? file_rate : rates.host_copy);
}

// Mixes one number into a hash: small numbers spread over all bits, and each number makes a difference of its
// own to any hash.
void mix(uint64_t& hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15U;
  hash ^= hash >> 32U;
}

uint64_t key_of(const Tensor& tensor) {
  uint64_t hash = 0;
  mix(hash, static_cast<uint64_t>(tensor.dtype) << 8U | static_cast<uint64_t>(tensor.space));
  for (const int64_t dim : tensor.shape.dims()) mix(hash, static_cast<uint64_t>(dim));
  return hash;
}

// The place where a slice begins is no part of it.
uint64_t key_of(const Attrs& attrs) {
  uint64_t hash = 0;
  for (const auto& [name, value] : attrs) {
    const auto* number = std::get_if<int64_t>(&value);
    if (number != nullptr && name != "first") mix(hash, static_cast<uint64_t>(*number));
  }
  return hash;
}

// A key for all that an op's seconds depend on.
template <class KeyOf>
uint64_t signature(const Op& op, const KeyOf& key_of_tensor) {
  uint64_t hash = 0;
  mix(hash, 1 + static_cast<uint64_t>(op.kind) + (static_cast<uint64_t>(op.axis) << 32U));
  for (const auto* ids : {&op.inputs, &op.outputs})
    for (const TensorId id : *ids) mix(hash, id == kNoTensor ? ~uint64_t{0} : key_of_tensor(id));
  mix(hash, key_of(op.attrs));
  return hash;
}

}  // namespace

OpWork work_of(const Graph& graph, const Op& op, const DeviceRates& rates) {
  Work work = work_of(graph, op);
  if (work.all_by_curve) {
    if (find_curve(rates, to_string(op.kind), rated_as(rates, work.dtype)) != nullptr)
      work.products.clear();
    else
      work.amount = 0;
  }
  double products = 0;
  for (const Product& product : work.products) products += product_seconds(product, rates);
  const auto rows = static_cast<double>(work.rows);
  return {.products = products * rows / static_cast<double>(work.rows_at_a_time),
          .work = work.amount,
          .at = work.at,
          .dtype = work.dtype,
          .head_dim = work.head_dim,
          .arithmetic = work.arithmetic,
          .curve = work.curve};
}

double rate_of(const Op& op, const OpWork& work, const DeviceRates& rates) {
  const DType dtype = rated_as(rates, work.dtype);
  const RateCurve* curve = work.curve.empty() ? nullptr : find_curve(rates, work.curve, dtype, work.head_dim);
  if (curve == nullptr) curve = find_curve(rates, to_string(op.kind), dtype, work.head_dim);
  if (curve != nullptr) return rate_at(*curve, work.at);
  if (!work.arithmetic) return rates.bandwidth;
  return dtype == DType::bf16 ? rates.vector_bf16 : rates.matmul_f32;
}

Bound bound_of(const Graph& graph, const Op& op, const DeviceRates& rates) {
  const Cost cost = cost_of(graph, op);
  const bool bf16 = cost.flops > 0 && rated_as(rates, graph.tensor(op.inputs.front()).dtype) == DType::bf16;
  const double arithmetic = cost.flops / (bf16 ? rates.matmul_bf16 : rates.matmul_f32);
  const double memory = cost.bytes / rates.bandwidth;
  return {cost.flops, cost.bytes, std::max(arithmetic, memory), arithmetic > memory};
}

double op_seconds(const Graph& graph, const Op& op, const DeviceRates& rates) {
  if (is_queued(op)) return transfer_seconds(graph, op, rates);
  if (is_transfer(op.kind)) return 0.0;
  const OpWork work = work_of(graph, op, rates);
  if (work.work == 0) return std::max(rates.op_overhead, work.products);
  return std::max(rates.op_overhead, work.products + work.work / rate_of(op, work, rates));
}

double contention_seconds(const Graph& graph, const Op& op, const DeviceRates& rates) {
  return cost_of(graph, op).bytes / rates.bandwidth;
}

TensorKeys::TensorKeys(const Graph& graph) {
  keys_.reserve(graph.tensors().size());
  for (const Tensor& tensor : graph.tensors()) keys_.push_back(key_of(tensor));
}

double TimeModel::known(uint64_t key, const Graph& graph, const Op& op) {
  const auto [entry, is_new] = known_.try_emplace(key, 0.0);
  if (is_new) entry->second = filled_op_seconds(graph, op, rates_, filling_);
  return entry->second;
}

double TimeModel::seconds_of(const Graph& graph, const Op& op) {
  return known(signature(op, [&](TensorId id) { return key_of(graph.tensor(id)); }), graph, op);
}

double TimeModel::seconds_of(const Graph& graph, const Op& op, const TensorKeys& keys) {
  return known(signature(op, [&](TensorId id) { return keys.of(id); }), graph, op);
}

void Queues::take(const Op& op, double seconds, double contention) {
  if (is_queued(op)) {
    take_transfer(copy_of(op), seconds, contention);
  } else if (is_transfer(op.kind)) {
    take_wait(copy_of(op));
  } else {
    take_compute(seconds);
  }
}

void Queues::take_transfer(TensorId copy, double seconds, double contention) {
  io = std::max(io, compute) + seconds;
  compute += contention;
  const auto place = static_cast<size_t>(copy);
  if (place >= complete_.size()) complete_.resize(place + 1);
  complete_[place] = io;
}

void Queues::take_wait(TensorId copy) {
  const auto place = static_cast<size_t>(copy);
  if (place < complete_.size()) compute = std::max(compute, complete_[place]);
}

double Queues::end() const { return std::max(compute, io); }

double TimeModel::program_seconds(const Graph& graph) {
  Queues queues;
  for (const Op& op : graph.ops()) {
    const bool io = is_queued(op);
    queues.take(op, seconds_of(graph, op), io ? contention_seconds(graph, op, rates_) : 0.0);
  }
  return queues.end();
}

int64_t disk_bytes_of(const Graph& graph, const Op& op) {
  if (!is_queued(op) || graph.tensor(offloaded_of(op)).space != Space::disk) return 0;
  return graph.tensor(copy_of(op)).bytes();
}

double runs_per_step(const Graph& program, const Variant& variant, const Filling& filling) {
  if (program.name() == kTrainProgram)
    return filling.micro_steps > 0 ? filling.micro_steps : static_cast<double>(variant.accumulation);
  return program.name() == kUpdateProgram ? 1 : 0;
}

double TimeModel::step_seconds(const std::vector<Graph>& programs, const Variant& variant) {
  double seconds = 0;
  for (const Graph& graph : programs) {
    const double runs = runs_per_step(graph, variant, filling_);
    if (runs > 0) seconds += program_seconds(graph) * runs;
  }
  return seconds;
}

int64_t disk_traffic(const std::vector<Graph>& programs, const Variant& variant, const Filling& filling) {
  double bytes = 0;
  for (const Graph& graph : programs) {
    int64_t once = 0;
    for (const Op& op : graph.ops()) once += disk_bytes_of(graph, op);
    bytes += runs_per_step(graph, variant, filling) * static_cast<double>(once);
  }
  return std::llround(bytes);
}

double predict_step_seconds(const std::vector<Graph>& programs, const Variant& variant,
                            const DeviceRates& rates, const Filling& filling) {
  return TimeModel(rates, filling).step_seconds(programs, variant);
}

}  // namespace plimsoll
