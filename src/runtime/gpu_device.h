// A device with memory and queues of its own, over a card, emulated or real: what orders transfers, uploads
// and downloads is here, and the same for both.
//
// A transfer's copy waits for what the program did before its start; what the program does after its wait
// waits for the copy. So no queue touches bytes that another one still uses.
#pragma once

#include <array>
#include <exception>
#include <memory>
#include <mutex>

#include "gpu/card.h"
#include "runtime/device.h"

namespace plimsoll {

class GpuDevice : public Device {
 public:
  explicit GpuDevice(std::unique_ptr<gpu::Card> card);
  ~GpuDevice() override;
  GpuDevice(const GpuDevice&) = delete;
  GpuDevice& operator=(const GpuDevice&) = delete;

  [[nodiscard]] bool reaches_host() const override { return false; }
  [[nodiscard]] std::optional<gpu::MemoryLeft> memory_left() const override { return card_->memory_left(); }
  std::unique_ptr<DeviceMemory> map(int64_t bytes) override;
  std::unique_ptr<DeviceMemory> map_host(int64_t bytes) override;
  std::unique_ptr<DeviceMemory> map_host_over(NodePages& front, int64_t bytes) override;
  std::unique_ptr<DiskArena> open_disk(const std::filesystem::path& folder, int64_t bytes) override;
  BoundCall bind(const Graph& graph, const Op& op, const AddressOf& address) override {
    return bind_sent(graph, op, address, {});
  }
  BoundCall bind_sent(const Graph& graph, const Op& op, const AddressOf& address, const Sent& sent) override;
  std::vector<BoundTransfer> bind_transfers(std::span<const Transfer> transfers) override;
  void upload(std::byte* to, std::span<const std::byte> from) override;
  void download(std::span<std::byte> to, const std::byte* from) override;
  void copy(std::byte* to, std::span<const std::byte> from) override;
  void finish_copies() override;
  void run_library(const std::function<void(void* stream)>& calls) override;
  void add_up_ranks(std::span<const std::byte> pieces, int64_t ranks, DType dtype, std::byte* sums) override;
  void finish_exchange(const std::function<void()>& looks) override;
  void fill(std::span<std::byte> bytes, int value) override;
  // One that waits behind each op captures none.
  [[nodiscard]] bool makes_graphs() const override { return !waits_; }
  [[nodiscard]] GraphUse graph_use() const override { return graph_use_; }
  void begin_capture() override;
  std::unique_ptr<gpu::CardGraph> end_capture() override;
  void launch(const gpu::CardGraph& graph) override { card_->launch(graph); }
  void finish() override;
  void abandon() noexcept override;

  // Host memory in addition to map_host(): for uploads and downloads, and with a disk for its transfers.
  static int64_t staging_bytes(bool with_disk);

 protected:
  // The op's kernels, as a call that launches them on the stream.
  virtual BoundCall bind_kernels(const Graph& graph, const Op& op, const AddressOf& address, const Sent& sent,
                                 gpu::Stream& stream) = 0;

  // Launches ops/optimizer/gpu_rank_sum.h.
  virtual void launch_sums(std::span<const std::byte> pieces, int64_t ranks, DType dtype, std::byte* sums,
                           gpu::Stream& stream) = 0;

 private:
  class OwnTransfer;
  // Pinned bytes, and the place in the compute queue behind which they are free again.
  struct Slot {
    std::byte* memory = nullptr;
    std::unique_ptr<gpu::Event> free;
    bool used = false;
  };

  Slot& next_slot();
  void wait_for(const gpu::Event& event);
  // The event of all that the compute queue holds now.
  gpu::Event& record_copied();
  [[nodiscard]] std::byte* disk_staging(gpu::Queue queue) const;
  // Moves bytes of the disk, on a thread of the card's; keeps what failed for finish().
  void move_disk_bytes(const std::function<void()>& move);
  void rethrow_failure();
  // Has all code of the op on the card, and refuses what no card launches.
  void load(const BoundCall& kernels, const Graph& graph, const Op& op);

  std::unique_ptr<gpu::Card> card_;
  bool waits_;  // behind each op, so that one that fails is known
  GraphUse graph_use_;
  int64_t free_before_capture_ = 0;
  std::byte* staging_ = nullptr;
  std::array<Slot, 2> slots_;
  size_t next_slot_ = 0;
  std::unique_ptr<gpu::Event> copied_;  // null until copies are waited for
  bool copies_ = false;                 // since finish_copies()
  std::byte* disk_staging_ = nullptr;   // a piece of each direction's
  std::mutex disk_mutex_;               // also of failure_
  std::exception_ptr failure_;
};

}  // namespace plimsoll
