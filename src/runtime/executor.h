// A program bound to an arena: a list of calls that is only walked.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "layout/program_layout.h"
#include "runtime/program_graphs.h"
#include "runtime/recorder.h"
#include "runtime/run_memory.h"

namespace plimsoll {

// Work of the host in front of an op and behind it; empty: none.
struct OpHooks {
  std::function<void()> before = {}, after = {};
};

struct ExecutorOptions {
  // Fills the bytes of every transient tensor with NaN when its owner dies, so that a read of a dead value
  // shows.
  bool poison = false;
  // Gets the time of every op and wait; spans name the program by `program`. Must outlive the executor.
  Recorder* recorder = nullptr;
  int32_t program = 0;
  // The number of graphs that may be made of the program's calls, where the device makes them, the program
  // moves nothing to or from a disk, and no recorder takes its ops' times.
  int graphs = 0;
  // Asked once about each op of the computing queue, where several ranks exchange something between ops. No graph
  // is made of a program that has one.
  std::function<OpHooks(const Op&)> hooks = {};
};

// Host memory that an executor of the program has on a device that the host does not reach.
int64_t mirror_bytes(const ProgramLayout& layout);

class Executor {
 public:
  // Graph, layout and arenas must outlive the executor.
  Executor(const Graph& graph, const ProgramLayout& layout, Device& device, const Arenas& arenas,
           const ExecutorOptions& options = {});
  // For a program all of whose tensors are on the device.
  Executor(const Graph& graph, const ProgramLayout& layout, Device& device, const DeviceMemory& memory,
           const ExecutorOptions& options = {})
      : Executor(graph, layout, device, Arenas{memory.data()}, options) {}

  // Runs the program once, its transfers included. Allocates nothing. Throws StoppedError when a transfer
  // failed; persistent tensors that the program writes are undefined then. A device with queues of its own
  // may still be at it when this returns.
  void run() const;

  [[nodiscard]] const Graph& graph() const { return graph_; }
  // An input's values, to be written before a run: in the arena, or where the host does not reach it in a
  // mirror, which run() sends. Throws InternalError when the program has none of that name or its elements
  // are of another size than T.
  template <class T>
  [[nodiscard]] std::span<T> input(std::string_view name) const {
    return values<T>(find(name, Role::input));
  }
  // A metric's values after the last run; valid until the next run or, of the same metric, the next result().
  template <class T>
  [[nodiscard]] std::span<const T> result(std::string_view name) const {
    const size_t row = find(name, Role::metric);
    fetch_mirror(row);
    return values<T>(row);
  }
  // An activation's values after the last run, until the next run; for devices whose memory the host reaches.
  template <class T>
  [[nodiscard]] std::span<const T> left_behind(std::string_view name) const {
    return values<T>(find(name, Role::activation));
  }
  // The device's bytes of an activation while the program is on its way, for hooks: what the ops before the hook's
  // did to them comes before the device's copies and fills of them, and those before what later ops do.
  [[nodiscard]] std::span<std::byte> bytes_on_its_way(std::string_view name) const {
    return bytes_on_its_way(static_cast<TensorId>(find(name, Role::activation)));
  }
  [[nodiscard]] std::span<std::byte> bytes_on_its_way(TensorId activation) const {
    const TableRow& row = layout_.rows[static_cast<size_t>(activation)];
    return {arenas_.address(row), static_cast<size_t>(row.bytes)};
  }
  [[nodiscard]] Device& device() const { return device_; }
  [[nodiscard]] bool has(std::string_view name) const { return graph_.find(name) != kNoTensor; }

 private:
  // One op.
  struct QueuedCall {
    BoundCall run;
    BoundCall job = nullptr;  // for the I/O thread
    int32_t waits_for = -1;   // number of a job, counted within the program
  };

  template <class T>
  [[nodiscard]] std::span<T> values(size_t row) const {
    check_type(layout_.rows[row], sizeof(T));
    return {reinterpret_cast<T*>(host_address(row)),
            static_cast<size_t>(layout_.rows[row].bytes) / sizeof(T)};
  }

  // The number of its row.
  [[nodiscard]] size_t find(std::string_view name, Role role) const;
  static void check_type(const TableRow& row, size_t element);
  [[nodiscard]] std::byte* host_address(size_t row) const;
  void fetch_mirror(size_t row) const;
  void send_inputs() const;
  void make_mirror();
  std::vector<HostFact> bind_calls(const std::function<OpHooks(const Op&)>& hooks);
  [[nodiscard]] std::vector<BoundTransfer> bind_transfers() const;
  void bind_poison();
  void run_calls(int64_t first_job) const;
  void run_call(size_t i, int64_t first_job) const;
  void run_recorded(size_t i, int64_t first_job) const;
  // The same call with its time on the I/O track.
  [[nodiscard]] BoundCall recorded_transfer(BoundCall call, size_t i) const;
  void finish_transfers() const;

  const Graph& graph_;
  const ProgramLayout& layout_;
  Device& device_;
  Arenas arenas_;
  Recorder* recorder_;
  int32_t program_;
  std::vector<QueuedCall> calls_;
  std::vector<std::vector<std::span<std::byte>>> dying_;  // by op, with poison only
  // Inputs and metrics, where the host does not reach the device.
  std::vector<int64_t> mirror_offsets_;  // by row; below zero: has none
  std::unique_ptr<std::byte[]> mirror_;
  std::unique_ptr<ProgramGraphs> graphs_;
  bool has_hooks_ = false;
};

}  // namespace plimsoll
