#include "runtime/executor.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/error.h"
#include "base/format.h"
#include "base/units.h"
#include "graph/op_kind.h"
#include "ops/rule.h"
#include "ops/transfer.h"

namespace plimsoll {
namespace {

// All bits set: NaN in f32, bf16 and f64, -1 in i32.
constexpr int kPoison = 0xFF;

// The alignment of rows in an executor's mirror; fit for any element and for vectors.
constexpr int64_t kMirrorAlignment = 64;

bool has_mirror(const TableRow& row) { return row.role == Role::input || row.role == Role::metric; }

Transfer transfer_of(const Graph& graph, const Op& op, const ProgramLayout& layout, const Arenas& arenas) {
  const TableRow& offloaded = layout.rows[static_cast<size_t>(offloaded_of(op))];
  const TableRow& copy = layout.rows[static_cast<size_t>(copy_of(op))];
  const ByteRange range = moved_bytes(graph, op);
  Transfer transfer{op.kind == OpKind::fetch,
                    {arenas.address(copy), static_cast<size_t>(range.bytes)},
                    nullptr,
                    arenas.disk,
                    offloaded.offset + range.first,
                    {}};
  if (offloaded.space != Space::disk) transfer.host = arenas.address(offloaded) + range.first;
  return transfer;
}

// The earlier transfers that have to come first: what is stored is fetched as it was stored last, and what
// is fetched is not yet stored over.
std::vector<size_t> earlier_of(const Graph& graph, std::span<const Op* const> transfers,
                               std::span<const size_t> of_same_tensor, const Op& op) {
  const ByteRange range = moved_bytes(graph, op);
  std::vector<size_t> found;
  for (const size_t i : of_same_tensor) {
    const Op& other = *transfers[i];
    if (op.kind == OpKind::fetch && other.kind == OpKind::fetch) continue;
    const ByteRange moved = moved_bytes(graph, other);
    if (moved.first < range.first + range.bytes && range.first < moved.first + moved.bytes)
      found.push_back(i);
  }
  return found;
}

// Returns true if there is work.
bool wrap(BoundCall& call, OpHooks work) {
  if (!work.before && !work.after) return false;
  call = [work = std::move(work), own = std::move(call)] {
    if (work.before) work.before();
    own();
    if (work.after) work.after();
  };
  return true;
}

}  // namespace

int64_t mirror_bytes(const ProgramLayout& layout) {
  int64_t bytes = 0;
  for (const TableRow& row : layout.rows)
    if (has_mirror(row)) bytes += round_up(row.bytes, kMirrorAlignment);
  return bytes;
}

Executor::Executor(const Graph& graph, const ProgramLayout& layout, Device& device, const Arenas& arenas,
                   const ExecutorOptions& options)
    : graph_(graph),
      layout_(layout),
      device_(device),
      arenas_(arenas),
      recorder_(options.recorder),
      program_(options.program) {
  if (!device.reaches_host()) make_mirror();
  std::vector<HostFact> facts = bind_calls(options.hooks);
  if (options.poison) bind_poison();
  if (options.graphs > 0 && device.makes_graphs() && recorder_ == nullptr && !moves_disk_bytes(graph) &&
      !has_hooks_)
    graphs_ = std::make_unique<ProgramGraphs>(device, std::move(facts), options.graphs);
}

void Executor::make_mirror() {
  mirror_ = std::make_unique<std::byte[]>(static_cast<size_t>(mirror_bytes(layout_)));
  int64_t at = 0;
  for (const TableRow& row : layout_.rows) {
    mirror_offsets_.push_back(has_mirror(row) ? at : -1);
    if (has_mirror(row)) at += round_up(row.bytes, kMirrorAlignment);
  }
}

std::vector<BoundTransfer> Executor::bind_transfers() const {
  std::vector<const Op*> ops;
  for (const Op& op : graph_.ops())
    if (is_queued(op)) ops.push_back(&op);
  std::vector<Transfer> transfers;
  std::unordered_map<TensorId, std::vector<size_t>> of_tensor;  // by offloaded tensor: numbers so far
  for (size_t i = 0; i < ops.size(); ++i) {
    std::vector<size_t>& earlier = of_tensor[offloaded_of(*ops[i])];
    transfers.push_back(transfer_of(graph_, *ops[i], layout_, arenas_));
    transfers.back().after = earlier_of(graph_, ops, earlier, *ops[i]);
    earlier.push_back(i);
  }
  return device_.bind_transfers(transfers);
}

std::vector<HostFact> Executor::bind_calls(const std::function<OpHooks(const Op&)>& hooks) {
  std::vector<HostFact> facts;
  const auto address = [this](TensorId id) { return arenas_.address(layout_.rows[static_cast<size_t>(id)]); };
  const Sent sent = {[this](TensorId id) -> const std::byte* {
                       const auto row = static_cast<size_t>(id);
                       return mirror_ != nullptr && layout_.rows[row].role == Role::input ? host_address(row)
                                                                                          : nullptr;
                     },
                     &facts};
  const std::vector<int32_t> waited = waited_transfers(graph_);
  std::vector<BoundTransfer> transfers = bind_transfers();
  std::vector<size_t> numbers(graph_.ops().size());
  std::vector<int32_t> jobs(transfers.size(), -1);
  int32_t started_jobs = 0;
  size_t started = 0;
  calls_.reserve(graph_.ops().size());
  for (size_t i = 0; i < graph_.ops().size(); ++i) {
    const Op& op = graph_.ops()[i];
    if (is_queued(op)) {
      BoundTransfer& transfer = transfers[numbers[i] = started++];
      if (transfer.job != nullptr) {
        check_internal(arenas_.io != nullptr,
                       formatted("program {} has transfers and no I/O queue", graph_.name()));
        jobs[numbers[i]] = started_jobs++;
        if (recorder_ != nullptr) transfer.job = recorded_transfer(std::move(transfer.job), i);
      }
      calls_.push_back({std::move(transfer.start), std::move(transfer.job)});
    } else if (waited[i] >= 0) {
      const size_t number = numbers[static_cast<size_t>(waited[i])];
      calls_.push_back({std::move(transfers[number].wait), nullptr, jobs[number]});
    } else {
      calls_.push_back({device_.bind_sent(graph_, op, address, sent)});
      if (hooks && wrap(calls_.back().run, hooks(op))) has_hooks_ = true;
    }
  }
  return facts;
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

void Executor::run_call(size_t i, int64_t first_job) const {
  const QueuedCall& call = calls_[i];
  if (call.waits_for >= 0) arenas_.io->wait(first_job + call.waits_for);
  if (call.run != nullptr) call.run();
  if (call.job != nullptr) arenas_.io->submit(call.job);
}

BoundCall Executor::recorded_transfer(BoundCall call, size_t i) const {
  return [call = std::move(call), recorder = recorder_, program = program_, op = static_cast<int32_t>(i)] {
    const int64_t begin = recorder->now();
    call();
    recorder->add(Track::io, {begin, recorder->now(), program, op});
  };
}

// On the compute track a transfer's span is what the queue made the computation wait. A GPU is waited for,
// since its calls take place later.
void Executor::run_recorded(size_t i, int64_t first_job) const {
  const int64_t begin = recorder_->now();
  run_call(i, first_job);
  if (recorder_->recording() && !device_.reaches_host() && calls_[i].run != nullptr) device_.finish();
  recorder_->add(Track::compute, {begin, recorder_->now(), program_, static_cast<int32_t>(i)});
}

void Executor::finish_transfers() const {
  if (arenas_.io == nullptr) return;
  const int64_t begin = recorder_ == nullptr ? 0 : recorder_->now();
  arenas_.io->drain();
  if (recorder_ != nullptr) recorder_->add(Track::compute, {begin, recorder_->now(), program_, -1});
}

void Executor::run() const {
  const int64_t first_job = arenas_.io == nullptr ? 0 : arenas_.io->next();
  try {
    send_inputs();
    if (graphs_ != nullptr) {
      graphs_->run([this, first_job] { run_calls(first_job); });
    } else {
      run_calls(first_job);
    }
    finish_transfers();
  } catch (...) {
    // Nothing may still write into tensors when the caller looks at them.
    if (arenas_.io != nullptr) arenas_.io->abandon();
    device_.abandon();
    throw;
  }
}

void Executor::run_calls(int64_t first_job) const {
  for (size_t i = 0; i < calls_.size(); ++i) {
    if (recorder_ == nullptr) {
      run_call(i, first_job);
    } else {
      run_recorded(i, first_job);
    }
    if (dying_.empty()) continue;
    for (const auto bytes : dying_[i]) device_.fill(bytes, kPoison);
  }
}

void Executor::send_inputs() const {
  for (size_t i = 0; i < mirror_offsets_.size(); ++i) {
    const TableRow& row = layout_.rows[i];
    if (row.role != Role::input) continue;
    device_.upload(arenas_.address(row), {host_address(i), static_cast<size_t>(row.bytes)});
  }
}

void Executor::fetch_mirror(size_t row) const {
  if (mirror_ == nullptr) return;
  const TableRow& of = layout_.rows[row];
  device_.download({host_address(row), static_cast<size_t>(of.bytes)}, arenas_.address(of));
}

std::byte* Executor::host_address(size_t row) const {
  if (mirror_ == nullptr) return arenas_.address(layout_.rows[row]);
  return mirror_.get() + mirror_offsets_[row];
}

size_t Executor::find(std::string_view name, Role role) const {
  const TensorId id = graph_.find(name);
  // Asked for in the step loop: the message is only built when it is needed.
  if (id == kNoTensor) throw InternalError(formatted("program {} has no tensor {}", graph_.name(), name));
  if (layout_.rows[static_cast<size_t>(id)].role != role)
    throw InternalError(formatted("program {}: {} is no {}", graph_.name(), name, to_string(role)));
  return static_cast<size_t>(id);
}

void Executor::check_type(const TableRow& row, size_t element) {
  if (static_cast<size_t>(size_of(row.dtype)) != element)
    throw InternalError(row.name + " is of another type");
}

}  // namespace plimsoll
