// A program bound to an arena: a list of calls that is only walked.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "layout/program_layout.h"
#include "runtime/recorder.h"
#include "runtime/run_memory.h"

namespace plimsoll {

struct ExecutorOptions {
  // Fills the bytes of every transient tensor with NaN when its owner dies, so that a read of a dead value
  // shows.
  bool poison = false;
  // Gets the time of every op and wait; spans name the program by `program`. Must outlive the executor.
  Recorder* recorder = nullptr;
  int32_t program = 0;
};

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
  // failed; persistent tensors that the program writes are undefined then.
  void run() const;

  [[nodiscard]] const Graph& graph() const { return graph_; }
  // A tensor's bytes in the arena, by name; throws InternalError when the program has none of that name or it
  // has another size than `count` elements of T.
  template <class T>
  [[nodiscard]] std::span<T> tensor(std::string_view name) const {
    const TableRow& row = find(name);
    check_type(row, sizeof(T));
    return {reinterpret_cast<T*>(arenas_.address(row)), static_cast<size_t>(row.bytes) / sizeof(T)};
  }
  [[nodiscard]] bool has(std::string_view name) const { return graph_.find(name) != kNoTensor; }

 private:
  enum class Queue : uint8_t { compute, io };
  // One op. Transfers run on the I/O queue; their waits run nothing.
  struct QueuedCall {
    BoundCall run;
    Queue queue = Queue::compute;
    int32_t waits_for = -1;  // number of a transfer, counted within the program
  };

  [[nodiscard]] const TableRow& find(std::string_view name) const;
  static void check_type(const TableRow& row, size_t element);
  void bind_calls(Device& device);
  void bind_poison();
  void run_call(size_t i, int64_t first_transfer) const;
  void run_recorded(size_t i, int64_t first_transfer) const;
  // The same call with its time on the I/O track.
  [[nodiscard]] BoundCall recorded_transfer(BoundCall call, size_t i) const;
  void finish_transfers() const;

  const Graph& graph_;
  const ProgramLayout& layout_;
  Arenas arenas_;
  Recorder* recorder_;
  int32_t program_;
  std::vector<QueuedCall> calls_;
  std::vector<std::vector<std::span<std::byte>>> dying_;  // by op, with poison only
};

}  // namespace plimsoll
