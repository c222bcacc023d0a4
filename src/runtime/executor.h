// A program bound to an arena: a list of calls that is only walked.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "layout/program_layout.h"
#include "runtime/device.h"

namespace plimsoll {

// Work queues of a device. The CPU computes on one and moves files on another; a call runs after what it
// waits for.
enum class Queue : uint8_t { compute, io };

struct QueuedCall {
  BoundCall run;
  Queue queue = Queue::compute;
  std::vector<int32_t> waits_for;  // indices of earlier calls on other queues
};

struct ExecutorOptions {
  // Fills the bytes of every transient tensor with NaN when its owner dies, so that a read of a dead value
  // shows.
  bool poison = false;
};

class Executor {
 public:
  // Graph, layout and memory must outlive the executor.
  Executor(const Graph& graph, const ProgramLayout& layout, Device& device, const DeviceMemory& memory,
           const ExecutorOptions& options = {});

  // Runs the program once. Allocates nothing.
  void run() const;

  [[nodiscard]] const Graph& graph() const { return graph_; }
  // A tensor's bytes in the arena, by name; throws InternalError when the program has none of that name or it
  // has another size than `count` elements of T.
  template <class T>
  [[nodiscard]] std::span<T> tensor(std::string_view name) const {
    const TableRow& row = find(name);
    check_type(row, sizeof(T));
    return {reinterpret_cast<T*>(base_ + row.offset), static_cast<size_t>(row.bytes) / sizeof(T)};
  }
  [[nodiscard]] bool has(std::string_view name) const { return graph_.find(name) != kNoTensor; }

 private:
  [[nodiscard]] const TableRow& find(std::string_view name) const;
  static void check_type(const TableRow& row, size_t element);
  void bind_poison();

  const Graph& graph_;
  const ProgramLayout& layout_;
  std::byte* base_;
  std::vector<QueuedCall> calls_;
  std::vector<std::vector<std::span<std::byte>>> dying_;  // by op, with poison only
};

}  // namespace plimsoll
