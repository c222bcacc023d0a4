// Runs programs without an arena, for tests of their schedules: every tensor has bytes of its own, and
// transfers take place as early or as late as the program allows. A result that holds at both ends holds
// between them.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "graph/op_kind.h"
#include "ops/rule.h"
#include "ops/transfer.h"
#include "runtime/device.h"

namespace plimsoll::test {

// Aligned as an arena's tensors are, as far as kernels can tell.
class Buffer {
 public:
  explicit Buffer(int64_t bytes = 0)
      : lines_(static_cast<size_t>(bytes + 63) / 64), bytes_(static_cast<size_t>(bytes)) {}
  [[nodiscard]] std::span<std::byte> bytes() { return {reinterpret_cast<std::byte*>(lines_.data()), bytes_}; }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> lines_;
  size_t bytes_;
};

// Persistent tensors by name, shared by the programs of a run.
using Persistent = std::map<std::string, Buffer>;
using Inputs = std::map<std::string, std::vector<std::byte>>;

enum class Transfers : uint8_t { when_they_start, when_they_are_waited_for };

class Program {
 public:
  Program(const Graph& graph, Device& device, Persistent& persistent, Transfers transfers)
      : graph_(graph), transfers_(transfers) {
    for (const Tensor& tensor : graph.tensors()) {
      Buffer* buffer = nullptr;
      if (is_persistent(tensor.role)) {
        buffer = &persistent.try_emplace(tensor.name, tensor.bytes()).first->second;
        check_internal(buffer->bytes().size() == static_cast<size_t>(tensor.bytes()), tensor.name);
      } else {
        buffer = &own_.emplace_back(tensor.bytes());
      }
      of_tensor_.push_back(buffer);
    }
    const auto address = [&](TensorId id) { return bytes(id).data(); };
    for (const Op& op : graph.ops())
      calls_.push_back(is_transfer(op.kind) ? BoundCall{} : device.bind(graph, op, address));
  }

  // Inputs that the program does not have are left out.
  void run(const Inputs& inputs) {
    for (Buffer& buffer : own_) std::memset(buffer.bytes().data(), 0xFF, buffer.bytes().size());
    for (const auto& [name, from] : inputs) {
      const TensorId id = graph_.find(name);
      if (id != kNoTensor) std::copy(from.begin(), from.end(), bytes(id).begin());
    }
    for (size_t i = 0; i < calls_.size(); ++i) {
      const Op& op = graph_.ops()[i];
      if (!is_transfer(op.kind)) {
        calls_[i]();
      } else if (is_queued(op)) {
        pending_.push_back(&op);
        if (transfers_ == Transfers::when_they_start) complete_one();
      } else {
        complete_until(op);
      }
    }
    check_internal(pending_.empty(), "a transfer that nothing waits for");
  }

 private:
  [[nodiscard]] std::span<std::byte> bytes(TensorId id) {
    return of_tensor_[static_cast<size_t>(id)]->bytes();
  }

  void complete_until(const Op& wait) {
    const auto waited_for = [&](const Op* op) { return copy_of(wait) == copy_of(*op); };
    while (std::any_of(pending_.begin(), pending_.end(), waited_for)) complete_one();
  }

  void complete_one() {
    const Op& op = *pending_.front();
    pending_.pop_front();
    const bool fetch = op.kind == OpKind::fetch;
    const TensorId offloaded = offloaded_of(op);
    const TensorId copy = copy_of(op);
    const auto offset = static_cast<size_t>(op.attr_int("first") * size_of(graph_.tensor(offloaded).dtype));
    const auto part = bytes(offloaded).subspan(offset, bytes(copy).size());
    const auto from = fetch ? part : bytes(copy);
    std::copy(from.begin(), from.end(), (fetch ? bytes(copy) : part).begin());
  }

  const Graph& graph_;
  Transfers transfers_;
  std::deque<Buffer> own_;
  std::vector<Buffer*> of_tensor_;
  std::vector<BoundCall> calls_;
  std::deque<const Op*> pending_;
};

}  // namespace plimsoll::test
