#include "runtime/executor.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/error.h"

namespace plimsoll {
namespace {

// All bits set: NaN in f32, bf16 and f64, -1 in i32.
constexpr int kPoison = 0xFF;

}  // namespace

Executor::Executor(const Graph& graph, const ProgramLayout& layout, Device& device,
                   const DeviceMemory& memory, const ExecutorOptions& options)
    : graph_(graph), layout_(layout), base_(memory.data()) {
  const auto address = [this](TensorId id) { return base_ + layout_.rows[static_cast<size_t>(id)].offset; };
  calls_.reserve(graph.ops().size());
  for (const Op& op : graph.ops()) calls_.push_back({device.bind(graph, op, address), Queue::compute, {}});
  if (options.poison) bind_poison();
}

// A storage dies with the last of the tensors that used it in turn; all of them name the same root.
void Executor::bind_poison() {
  if (graph_.ops().empty()) return;
  dying_.resize(graph_.ops().size());
  std::map<std::string, int32_t> root_last;
  for (const TableRow& row : layout_.rows) {
    if (is_persistent(row.role)) continue;
    const std::string& root = row.shares.empty() ? row.name : row.shares;
    auto& last = root_last[root];
    last = std::max(last, row.last);
  }
  for (const TableRow& row : layout_.rows) {
    if (is_persistent(row.role) || !row.shares.empty()) continue;
    dying_[static_cast<size_t>(root_last.at(row.name))].push_back(
        {base_ + row.offset, static_cast<size_t>(row.bytes)});
  }
}

void Executor::run() const {
  if (dying_.empty()) {
    for (const QueuedCall& call : calls_) call.run();
    return;
  }
  for (size_t i = 0; i < calls_.size(); ++i) {
    calls_[i].run();
    for (const auto bytes : dying_[i]) std::memset(bytes.data(), kPoison, bytes.size());
  }
}

const TableRow& Executor::find(std::string_view name) const {
  const TensorId id = graph_.find(name);
  // Asked for in the step loop: the message is only built when it is needed.
  if (id == kNoTensor)
    throw InternalError("program " + graph_.name() + " has no tensor " + std::string(name));
  return layout_.rows[static_cast<size_t>(id)];
}

void Executor::check_type(const TableRow& row, size_t element) {
  if (static_cast<size_t>(size_of(row.dtype)) != element)
    throw InternalError(row.name + " is of another type");
}

}  // namespace plimsoll
