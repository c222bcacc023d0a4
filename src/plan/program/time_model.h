// Predicted time of a program: each op's seconds from the device's rates, and two queues that run side by
// side. A program is bound for full sequences, but its matrix products, attention and loss stop at the tokens
// that are there (ops/step_values.h); what is added, scaled or moved walks the whole capacity.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "device/description.h"
#include "graph/graph.h"
#include "plan/program/experiment.h"

namespace plimsoll {

// The parts of an op's seconds: matrix products by their tables, and work at the rate that the op's own curve
// gives.
struct OpWork {
  double products = 0;  // seconds
  double work = 0;      // bytes; FLOPs where `arithmetic`
  double at = 0;        // where to read the curve
  DType dtype = DType::f32;
  int64_t head_dim = 0;
  bool arithmetic = false;
  std::string_view curve = {};  // tried before the kind's
};
OpWork work_of(const Graph& graph, const Op& op, const DeviceRates& rates);
// The rate of the work that is no product: the op's curve, else the device's own rate.
double rate_of(const Op& op, const OpWork& work, const DeviceRates& rates);

// The least that an op could take: FLOPs and bytes of its rule over the best rates measured on the device.
// Bytes are over the memory's bandwidth; an op whose operands lie in a cache may be faster than its bound.
struct Bound {
  double flops = 0, bytes = 0, seconds = 0;
  bool arithmetic = false;  // FLOPs take the longer part
};
Bound bound_of(const Graph& graph, const Op& op, const DeviceRates& rates);

// Seconds of one op on its queue, with full sequences.
double op_seconds(const Graph& graph, const Op& op, const DeviceRates& rates);

// The share of one axis of its programs that a step's rows fill.
struct AxisFilling {
  double rows = 1;    // share of them
  double length = 0;  // of the sequence that a row is in, on average: what attention meets; 0: full sequences
  double keys = 0;    // that a row meets on another axis, on average; 0: as many as there may be
};
struct Filling {
  std::array<AxisFilling, kMostAxes> axes;
  double tokens = 1;       // share of the positions of all token axes together
  double targets = 1;      // share of the rows with logits that have a label
  double micro_steps = 0;  // of an optimizer step, on average; 0: as many as the variant may need
};
// Seconds of one op that is filled so far.
double filled_op_seconds(const Graph& graph, const Op& op, const DeviceRates& rates, const Filling& filling);

// Seconds that a transfer takes from the computation that runs at the same time: its bytes pass the same
// memory. What makes a variant that moves nothing the faster one where the queue has time enough for both.
double contention_seconds(const Graph& graph, const Op& op, const DeviceRates& rates);

// The compute queue walks the ops in order; transfers are issued when it reaches them and run one after the
// other on the I/O queue; a wait holds the compute queue until its copy is complete. The program ends when
// both queues are empty.
struct Queues {
  double compute = 0, io = 0;  // seconds until each has done what it was given

  // The next op: its seconds on its queue, and of a transfer those that it takes from the compute queue.
  void take(const Op& op, double seconds, double contention);
  // Ops of each kind; the copy of a transfer is what is on the device.
  void take_compute(double seconds) { compute += seconds; }
  void take_transfer(TensorId copy, double seconds, double contention);
  void take_wait(TensorId copy);
  [[nodiscard]] double end() const;

 private:
  std::vector<double> complete_;  // by the copy on the device: seconds; 0: nothing moves it
};

// Bytes that a transfer reads from or writes to the disk; 0 for other ops.
int64_t disk_bytes_of(const Graph& graph, const Op& op);
// The number of times that an optimizer step runs a program.
double runs_per_step(const Graph& program, const Variant& variant, const Filling& filling);

// Keys of a program's tensors for the seconds of its ops, made once for those who ask for all of them.
class TensorKeys {
 public:
  explicit TensorKeys(const Graph& graph);
  [[nodiscard]] uint64_t of(TensorId id) const { return keys_[static_cast<size_t>(id)]; }

 private:
  std::vector<uint64_t> keys_;  // by tensor
};

// Remembers the seconds of ops by kind, types, shapes and attributes: layers repeat, and so do the variants
// of a search, which keeps one model for all of them. The rates must outlive it. Not for two threads.
class TimeModel {
 public:
  explicit TimeModel(const DeviceRates& rates, const Filling& filling = {})
      : rates_(rates), filling_(filling) {}

  double seconds_of(const Graph& graph, const Op& op);
  double seconds_of(const Graph& graph, const Op& op, const TensorKeys& keys);
  double program_seconds(const Graph& graph);
  // One optimizer step: the micro-step as often as it accumulates, and the update.
  double step_seconds(const std::vector<Graph>& programs, const Variant& variant);
  [[nodiscard]] const Filling& filling() const { return filling_; }

 private:
  double known(uint64_t key, const Graph& graph, const Op& op);

  const DeviceRates& rates_;
  Filling filling_;
  std::unordered_map<uint64_t, double> known_;
};

// Bytes that an optimizer step reads from and writes to the disk.
int64_t disk_traffic(const std::vector<Graph>& programs, const Variant& variant, const Filling& filling);

double predict_step_seconds(const std::vector<Graph>& programs, const Variant& variant,
                            const DeviceRates& rates, const Filling& filling = {});

}  // namespace plimsoll
