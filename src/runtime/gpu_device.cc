#include "runtime/gpu_device.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/system_memory.h"
#include "base/units.h"
#include "gpu/card_fault.h"
#include "gpu/launch_limits.h"
#include "graph/op_kind.h"
#include "ranks/node_pages.h"
#include "runtime/arena.h"

namespace plimsoll {
namespace {

using gpu::Queue;

constexpr int64_t kSlot = kMiB;
// Long enough for the disk's full rate.
constexpr int64_t kDiskPiece = 4 * kMiB;

// Memory of the card, or of the host where the card copies by itself.
class CardMemory : public DeviceMemory {
 public:
  CardMemory(gpu::Card& card, int64_t bytes, bool on_host)
      : card_(card),
        data_(on_host ? card.allocate_host(bytes) : card.allocate(bytes)),
        bytes_(bytes),
        on_host_(on_host) {}
  ~CardMemory() override { on_host_ ? card_.release_host(data_) : card_.release(data_); }
  CardMemory(const CardMemory&) = delete;
  CardMemory& operator=(const CardMemory&) = delete;
  [[nodiscard]] std::byte* data() const override { return data_; }
  [[nodiscard]] int64_t bytes() const override { return bytes_; }

 private:
  gpu::Card& card_;
  std::byte* data_;
  int64_t bytes_;
  bool on_host_;
};

// Memory of the host that the process has by itself, locked for the card's copies.
class Locked {
 public:
  Locked(gpu::Card& card, std::span<std::byte> memory) : card_(card), memory_(memory.data()) {
    const std::string reason = card.lock_host(memory);
    if (reason.empty()) return;
    const auto limit = locked_limit();
    throw DoesNotFitError(formatted(
        "memory.node_copy: {} of the host's memory cannot be locked for the card to copy from ({}){}{}",
        format_bytes(static_cast<int64_t>(memory.size())), reason,
        limit ? formatted(": a process may lock {} (ulimit -l); raise that, or ", format_bytes(*limit))
              : "; ",
        NodePages::kInstead));
  }
  ~Locked() { card_.unlock_host(memory_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  gpu::Card& card_;
  std::byte* memory_;
};

// The host's arena with a front that other processes have too. Each locks all of it for its own card: a lock is of a
// process's own addresses. The card only reads the front: programs fetch frozen weights and store none.
class SharedHostMemory : public DeviceMemory {
 public:
  SharedHostMemory(gpu::Card& card, NodePages& front, int64_t bytes)
      : arena_(bytes, 1, &front), front_(card, {arena_.data(), static_cast<size_t>(front.bytes())}) {
    if (bytes > front.bytes())
      rest_.emplace(card,
                    std::span(arena_.data() + front.bytes(), static_cast<size_t>(bytes - front.bytes())));
  }
  [[nodiscard]] std::byte* data() const override { return arena_.data(); }
  [[nodiscard]] int64_t bytes() const override { return arena_.bytes(); }

 private:
  Arena arena_;
  Locked front_;
  std::optional<Locked> rest_;
};

// "linear_dx of model.layers.3.mlp.up_proj".
std::string name_of(OpKind kind, const Name& scope) {
  return std::string(to_string(kind)) + (scope.text().empty() ? "" : " of " + scope.text());
}

// A variable of the environment that is set: it is there, and neither empty nor 0.
bool is_set(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value != '\0' && std::string_view(value) != "0";
}

// Code that came at its first launch would take memory of a run that is under way.
class OnlyLoads {
 public:
  explicit OnlyLoads(gpu::Stream& stream) : stream_(stream) { stream_.only_load(true); }
  ~OnlyLoads() { stream_.only_load(false); }
  OnlyLoads(const OnlyLoads&) = delete;
  OnlyLoads& operator=(const OnlyLoads&) = delete;

 private:
  gpu::Stream& stream_;
};

}  // namespace

// One transfer of a program. From the host's memory and to it the card copies by itself; from the disk and to
// it bytes go by pieces through pinned memory, read and written by calls in the same queue.
class GpuDevice::OwnTransfer {
 public:
  OwnTransfer(GpuDevice& device, Transfer transfer, const std::string& name)
      : device_(device),
        card_(*device.card_),
        transfer_(std::move(transfer)),
        began_(card_.make_event("the start of " + name)),
        done_(card_.make_event("the end of " + name)) {
    if (transfer_.host == nullptr) bind_pieces();
  }
  // The queue may still hold calls of its pieces. A transfer without them leaves nothing to wait for, and if
  // a capture was the last to record its end nothing could be.
  ~OwnTransfer() {
    if (!started_ || pieces_.empty()) return;
    try {
      card_.wait_on_host(*done_);
    } catch (...) {
      device_.abandon();
    }
  }
  OwnTransfer(const OwnTransfer&) = delete;
  OwnTransfer& operator=(const OwnTransfer&) = delete;

  [[nodiscard]] Queue queue() const { return transfer_.fetches ? Queue::in : Queue::out; }
  // Orders this transfer after one of another queue, by an event.
  void follow(const OwnTransfer& other) {
    if (other.queue() != queue()) after_.push_back(other.done_.get());
  }

  void start() {
    started_ = true;
    card_.record(Queue::compute, *began_);
    card_.wait(queue(), *began_);
    for (const gpu::Event* event : after_) card_.wait(queue(), *event);
    if (transfer_.host != nullptr) {
      move_on_host();
    } else {
      move_on_disk();
    }
    card_.record(queue(), *done_);
  }
  void wait() const { card_.wait(Queue::compute, *done_); }

 private:
  struct Piece {
    std::span<std::byte> copy;
    std::function<void()> move;  // between disk and staging
  };

  void bind_pieces() {
    std::byte* const staging = device_.disk_staging(queue());
    const auto bytes = static_cast<int64_t>(transfer_.copy.size());
    for (int64_t at = 0; at < bytes; at += kDiskPiece) {
      const auto size = static_cast<size_t>(std::min(kDiskPiece, bytes - at));
      const std::span<std::byte> staged(staging, size);
      const int64_t offset = transfer_.disk_offset + at;
      const auto move = [this, staged, offset] {
        if (transfer_.fetches) {
          transfer_.disk->read(offset, staged);
        } else {
          transfer_.disk->write(offset, staged);
        }
      };
      pieces_.push_back({transfer_.copy.subspan(static_cast<size_t>(at), size),
                         [this, move] { device_.move_disk_bytes(move); }});
    }
  }

  void move_on_host() const {
    if (transfer_.fetches) {
      card_.copy(queue(), transfer_.copy.data(), {transfer_.host, transfer_.copy.size()});
    } else {
      card_.copy(queue(), transfer_.host, transfer_.copy);
    }
  }

  void move_on_disk() const {
    std::byte* const staging = device_.disk_staging(queue());
    for (const Piece& piece : pieces_) {
      if (transfer_.fetches) {
        card_.call(queue(), piece.move);
        card_.copy(queue(), piece.copy.data(), {staging, piece.copy.size()});
      } else {
        card_.copy(queue(), staging, piece.copy);
        card_.call(queue(), piece.move);
      }
    }
  }

  GpuDevice& device_;
  gpu::Card& card_;
  Transfer transfer_;
  std::unique_ptr<gpu::Event> began_, done_;
  std::vector<const gpu::Event*> after_;
  std::vector<Piece> pieces_;  // of the disk
  bool started_ = false;
};

GpuDevice::GpuDevice(std::unique_ptr<gpu::Card> card)
    : card_(std::move(card)),
      waits_(is_set("PLIMSOLL_CARD_WAITS")),
      staging_(card_->allocate_host(staging_bytes(false))) {
  for (size_t i = 0; i < slots_.size(); ++i)
    slots_[i] = {staging_ + static_cast<int64_t>(i) * kSlot,
                 card_->make_event("the use of staging " + std::to_string(i)), false};
}

GpuDevice::~GpuDevice() {
  abandon();
  card_->release_host(staging_);
  if (disk_staging_ != nullptr) card_->release_host(disk_staging_);
}

int64_t GpuDevice::staging_bytes(bool with_disk) { return 2 * kSlot + (with_disk ? 2 * kDiskPiece : 0); }

std::unique_ptr<DeviceMemory> GpuDevice::map(int64_t bytes) {
  return std::make_unique<CardMemory>(*card_, bytes, false);
}

std::unique_ptr<DeviceMemory> GpuDevice::map_host(int64_t bytes) {
  return std::make_unique<CardMemory>(*card_, bytes, true);
}

std::unique_ptr<DeviceMemory> GpuDevice::map_host_over(NodePages& front, int64_t bytes) {
  return std::make_unique<SharedHostMemory>(*card_, front, bytes);
}

std::unique_ptr<DiskArena> GpuDevice::open_disk(const std::filesystem::path& folder, int64_t bytes) {
  auto disk = std::make_unique<DiskArena>(folder, bytes);
  if (disk_staging_ == nullptr) disk_staging_ = card_->allocate_host(2 * kDiskPiece);
  return disk;
}

std::byte* GpuDevice::disk_staging(Queue queue) const {
  return disk_staging_ + (queue == Queue::in ? 0 : kDiskPiece);
}

BoundCall GpuDevice::bind_sent(const Graph& graph, const Op& op, const AddressOf& address, const Sent& sent) {
  BoundCall kernels = bind_kernels(graph, op, address, sent, card_->stream());
  load(kernels, graph, op);
  return [&card = *card_, waits = waits_, kind = op.kind, scope = op.scope, kernels = std::move(kernels)] {
    try {
      card.run(kernels);
      if (waits) card.finish();
    } catch (const gpu::CardFault& fault) {
      throw gpu::CardFault(fault.cause(), name_of(kind, scope), waits);
    }
  };
}

void GpuDevice::load(const BoundCall& kernels, const Graph& graph, const Op& op) {
  const OnlyLoads loads(card_->stream());
  try {
    kernels();
  } catch (const gpu::LaunchRefused& refused) {
    throw UsageError(formatted(
        "device: {} ({}); fewer rows a micro-step (batch.micro) or shorter ones (data.max_length) need less",
        refused.what(), print_op(graph, op)));
  }
}

std::vector<BoundTransfer> GpuDevice::bind_transfers(std::span<const Transfer> transfers) {
  std::vector<std::shared_ptr<OwnTransfer>> own;
  std::vector<BoundTransfer> bound;
  for (const Transfer& transfer : transfers) {
    const std::string name = (transfer.fetches ? "fetch " : "store ") + std::to_string(bound.size());
    own.push_back(std::make_shared<OwnTransfer>(*this, transfer, name));
    for (const size_t earlier : transfer.after) own.back()->follow(*own[earlier]);
    bound.push_back({.start = [one = own.back()] { one->start(); },
                     .job = nullptr,
                     .wait = [one = own.back()] { one->wait(); }});
  }
  return bound;
}

GpuDevice::Slot& GpuDevice::next_slot() {
  Slot& slot = slots_[next_slot_++ % slots_.size()];
  if (slot.used) wait_for(*slot.free);
  slot.used = true;
  return slot;
}

void GpuDevice::wait_for(const gpu::Event& event) {
  try {
    card_->wait_on_host(event);
  } catch (...) {
    abandon();
    throw;
  }
}

void GpuDevice::upload(std::byte* to, std::span<const std::byte> from) {
  for (size_t at = 0; at < from.size(); at += kSlot) {
    const auto piece = from.subspan(at, std::min(static_cast<size_t>(kSlot), from.size() - at));
    Slot& slot = next_slot();
    std::memcpy(slot.memory, piece.data(), piece.size());
    card_->copy(Queue::compute, to + at, {slot.memory, piece.size()});
    card_->record(Queue::compute, *slot.free);
  }
}

void GpuDevice::download(std::span<std::byte> to, const std::byte* from) {
  for (size_t at = 0; at < to.size(); at += kSlot) {
    const auto piece = to.subspan(at, std::min(static_cast<size_t>(kSlot), to.size() - at));
    Slot& slot = next_slot();
    card_->copy(Queue::compute, slot.memory, {from + at, piece.size()});
    card_->record(Queue::compute, *slot.free);
    wait_for(*slot.free);
    rethrow_failure();
    std::memcpy(piece.data(), slot.memory, piece.size());
  }
}

void GpuDevice::copy(std::byte* to, std::span<const std::byte> from) {
  card_->copy(Queue::compute, to, from);
  copies_ = true;
}

void GpuDevice::finish_copies() {
  if (!copies_) return;
  wait_for(record_copied());
  rethrow_failure();
  copies_ = false;
}

gpu::Event& GpuDevice::record_copied() {
  if (copied_ == nullptr) copied_ = card_->make_event("the copies of the host's");
  card_->record(Queue::compute, *copied_);
  return *copied_;
}

void GpuDevice::run_library(const std::function<void(void* stream)>& calls) {
  card_->run_library(calls);
  copies_ = true;
}

void GpuDevice::add_up_ranks(std::span<const std::byte> pieces, int64_t ranks, DType dtype, std::byte* sums) {
  card_->run([&] { launch_sums(pieces, ranks, dtype, sums, card_->stream()); });
  copies_ = true;
}

void GpuDevice::finish_exchange(const std::function<void()>& looks) {
  constexpr int kSpins = 200;
  const gpu::Event& end = record_copied();
  try {
    for (int spins = 0; !card_->has_come(end); ++spins) {
      looks();
      if (spins < kSpins)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    looks();
  } catch (...) {
    abandon();
    throw;
  }
  rethrow_failure();
  copies_ = false;
}

void GpuDevice::fill(std::span<std::byte> bytes, int value) { card_->fill(Queue::compute, bytes, value); }

void GpuDevice::begin_capture() {
  free_before_capture_ = card_->memory_left().free;
  card_->begin_capture();
  card_->stream().capture(true);
}

std::unique_ptr<gpu::CardGraph> GpuDevice::end_capture() {
  card_->stream().capture(false);
  auto graph = card_->end_capture();
  ++graph_use_.graphs;
  graph_use_.nodes += graph->nodes();
  graph_use_.bytes += std::max<int64_t>(0, free_before_capture_ - card_->memory_left().free);
  return graph;
}

void GpuDevice::finish() {
  try {
    card_->finish();
  } catch (...) {
    abandon();
    throw;
  }
  rethrow_failure();
}

void GpuDevice::abandon() noexcept {
  card_->abandon();
  card_->stream().capture(false);
  for (Slot& slot : slots_) slot.used = false;
  copies_ = false;
  const std::lock_guard lock(disk_mutex_);
  failure_ = nullptr;
}

void GpuDevice::move_disk_bytes(const std::function<void()>& move) {
  const std::lock_guard lock(disk_mutex_);
  if (failure_) return;  // what comes after a failure is passed over
  try {
    move();
  } catch (...) {
    failure_ = std::current_exception();
  }
}

void GpuDevice::rethrow_failure() {
  std::exception_ptr failure;
  {
    const std::lock_guard lock(disk_mutex_);
    failure = failure_;
  }
  if (!failure) return;
  abandon();
  std::rethrow_exception(failure);
}

}  // namespace plimsoll
