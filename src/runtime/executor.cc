#include "runtime/executor.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/error.h"
#include "graph/op_kind.h"
#include "ops/rule.h"
#include "ops/transfer.h"

namespace plimsoll {
namespace {

// All bits set: NaN in f32, bf16 and f64, -1 in i32.
constexpr int kPoison = 0xFF;

Transfer transfer_of(const Graph& graph, const Op& op, const ProgramLayout& layout, const Arenas& arenas) {
  const TableRow& home = layout.rows[static_cast<size_t>(home_of(op))];
  const TableRow& copy = layout.rows[static_cast<size_t>(copy_of(op))];
  const ByteRange range = moved_bytes(graph, op);
  Transfer transfer{op.kind == OpKind::fetch,
                    {arenas.address(copy), static_cast<size_t>(range.bytes)},
                    nullptr,
                    arenas.disk,
                    home.offset + range.first};
  if (home.space != Space::disk) transfer.host = arenas.address(home) + range.first;
  return transfer;
}

}  // namespace

Executor::Executor(const Graph& graph, const ProgramLayout& layout, Device& device, const Arenas& arenas,
                   const ExecutorOptions& options)
    : graph_(graph),
      layout_(layout),
      arenas_(arenas),
      recorder_(options.recorder),
      program_(options.program) {
  bind_calls(device);
  if (options.poison) bind_poison();
}

void Executor::bind_calls(Device& device) {
  const auto address = [this](TensorId id) { return arenas_.address(layout_.rows[static_cast<size_t>(id)]); };
  const std::vector<int32_t> waited = waited_transfers(graph_);
  std::vector<int32_t> numbers(graph_.ops().size(), -1);
  int32_t transfers = 0;
  calls_.reserve(graph_.ops().size());
  for (size_t i = 0; i < graph_.ops().size(); ++i) {
    const Op& op = graph_.ops()[i];
    if (is_queued(op)) {
      check_internal(arenas_.io != nullptr, "program " + graph_.name() + " has transfers and no I/O queue");
      numbers[i] = transfers++;
      BoundCall transfer = device.bind_transfer(transfer_of(graph_, op, layout_, arenas_));
      if (recorder_ != nullptr) transfer = recorded_transfer(std::move(transfer), i);
      calls_.push_back({std::move(transfer), Queue::io});
    } else if (waited[i] >= 0) {
      calls_.push_back({nullptr, Queue::compute, numbers[static_cast<size_t>(waited[i])]});
    } else {
      calls_.push_back({device.bind(graph_, op, address)});
    }
  }
}

// A storage dies with the last of the tensors that used it in turn; all of them name the same root.
void Executor::bind_poison() {
  if (graph_.ops().empty()) return;
  dying_.resize(graph_.ops().size());
  std::map<std::string, int32_t> root_last;
  for (const TableRow& row : layout_.rows) {
    if (is_persistent(row.role) || row.space == Space::disk) continue;
    const std::string& root = row.shares.empty() ? row.name : row.shares;
    auto& last = root_last[root];
    last = std::max(last, row.last);
  }
  for (const TableRow& row : layout_.rows) {
    if (is_persistent(row.role) || row.space == Space::disk || !row.shares.empty()) continue;
    dying_[static_cast<size_t>(root_last.at(row.name))].push_back(
        {arenas_.address(row), static_cast<size_t>(row.bytes)});
  }
}

void Executor::run_call(size_t i, int64_t first_transfer) const {
  const QueuedCall& call = calls_[i];
  if (call.queue == Queue::io) {
    arenas_.io->submit(call.run);
  } else if (call.waits_for >= 0) {
    arenas_.io->wait(first_transfer + call.waits_for);
  } else {
    call.run();
  }
}

BoundCall Executor::recorded_transfer(BoundCall call, size_t i) const {
  return [call = std::move(call), recorder = recorder_, program = program_, op = static_cast<int32_t>(i)] {
    const int64_t begin = recorder->now();
    call();
    recorder->add(Track::io, {begin, recorder->now(), program, op});
  };
}

// On the compute track a transfer's span is what the queue made the computation wait.
void Executor::run_recorded(size_t i, int64_t first_transfer) const {
  const int64_t begin = recorder_->now();
  run_call(i, first_transfer);
  recorder_->add(Track::compute, {begin, recorder_->now(), program_, static_cast<int32_t>(i)});
}

void Executor::finish_transfers() const {
  if (arenas_.io == nullptr) return;
  const int64_t begin = recorder_ == nullptr ? 0 : recorder_->now();
  arenas_.io->drain();
  if (recorder_ != nullptr) recorder_->add(Track::compute, {begin, recorder_->now(), program_, -1});
}

void Executor::run() const {
  const int64_t first_transfer = arenas_.io == nullptr ? 0 : arenas_.io->next();
  try {
    for (size_t i = 0; i < calls_.size(); ++i) {
      if (recorder_ == nullptr) {
        run_call(i, first_transfer);
      } else {
        run_recorded(i, first_transfer);
      }
      if (dying_.empty()) continue;
      for (const auto bytes : dying_[i]) std::memset(bytes.data(), kPoison, bytes.size());
    }
    finish_transfers();
  } catch (...) {
    // Nothing may go on writing into tensors when the caller looks at them.
    if (arenas_.io != nullptr) arenas_.io->abandon();
    throw;
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
