// NVIDIA's NCCL, which moves bytes from card to card, looked for when a run asks for it. It adds up nothing: sums over
// ranks are this program's, in their order.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gpu/library_places.h"
#include "gpu/nccl_abi.h"

namespace plimsoll::gpu {

// A library of version 2.18 or later. It stays loaded.
struct NcclLibrary {
  nccl::Calls calls;
  int version = 0;  // 22703 for 2.27.3
  std::filesystem::path file;

  [[nodiscard]] std::string name() const;  // "NCCL 2.27.3"
};

// The library, or in `reason` why none was opened.
struct OpenedNccl {
  std::shared_ptr<const NcclLibrary> library;
  std::string reason;
};

// The files that are tried: libnccl.so.2 as gpu/library_places.h has it, with PLIMSOLL_NCCL as its variable.
std::vector<std::filesystem::path> nccl_places(const ReadVariable& variable);
OpenedNccl open_nccl(const ReadVariable& variable);
// The packages to install on a machine without it.
extern const char* const kInstallNccl;
// The versions from 2.30 on can give two ranks one card, where NCCL_MULTI_RANK_GPU_ENABLE=1 is in the environment.
inline constexpr int kNcclSharesCards = 23000;

// The channels that a communicator may have: each takes a multiprocessor while it moves bytes, and buffers.
inline constexpr int kNcclChannels = 4;

// A rank's end of the connections to all others. One thread asks it to move bytes; abort() is for any thread.
class NcclComm {
 public:
  // All ranks need it to find each other; one of them makes it.
  static std::string unique_id(const NcclLibrary& library);

  // All ranks make theirs at the same time, with the card chosen; returns once they are connected. Throws StoppedError
  // where they are not within `seconds`, or where NCCL fails.
  NcclComm(std::shared_ptr<const NcclLibrary> library, const std::string& id, int rank, int ranks,
           double seconds);
  ~NcclComm() { abort(); }
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  // There are `each` bytes for each rank: piece r goes to rank r, and piece r came from it; its own too. Takes place when
  // `stream` (a cudaStream_t) comes to it.
  void exchange(const std::byte* from, std::byte* to, size_t each, void* stream);
  // A rank has filled its piece, and gets those of the others.
  void all_gather(std::byte* bytes, size_t each, void* stream);
  // Throws StoppedError where something failed that was asked for before.
  void require_whole() const;
  // All that is under way ends with an error, at once; nothing may be asked any more.
  void abort() noexcept;
  // The same for a process that ends now: a thread that asks for something stays where it is.
  void abort_to_end() noexcept;

 private:
  // No other thread ends it at the same time.
  [[nodiscard]] std::unique_lock<std::mutex> use() const;
  void require(int result, const char* call) const;
  [[noreturn]] void fail(int result, const char* call) const;
  // Until NCCL has done what it does by a thread of its own.
  void wait_for(int result, const char* call, double seconds) const;
  template <class Calls>
  void group(Calls&& calls);

  std::shared_ptr<const NcclLibrary> library_;
  int rank_, ranks_;
  nccl::Comm comm_ = nullptr;
  mutable std::mutex mutex_;
  bool aborted_ = false, ends_ = false;
};

}  // namespace plimsoll::gpu
