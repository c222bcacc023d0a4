#include "gpu/nccl.h"

#include <chrono>
#include <cstring>
#include <limits>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/shared_library.h"

namespace plimsoll::gpu {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNcclVariable = "PLIMSOLL_NCCL";
constexpr int kOldest = 21800;  // asked for with its configuration
constexpr const char* kWhatToDo =
    "\n  NCCL_DEBUG=WARN in the environment says more; memory.exchange: staged (--set memory.exchange=staged) does "
    "without it";
constexpr double kForEver = std::numeric_limits<double>::infinity();  // who watches over the ranks ends it

std::string version_text(int version) {
  return formatted("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

SoughtLibrary sought_nccl() {
  return {.variable = kNcclVariable, .names = {"libnccl.so.2"}, .packages = {"nccl"}};
}

// The functions of an opened library; in `missing` the first that it lacks.
nccl::Calls find_nccl_calls(void* opened, std::string& missing) {
  nccl::Calls calls;
  const auto find = [&](auto& function, const char* name) {
    if (!find_function(opened, name, function) && missing.empty()) missing = name;
  };
  find(calls.version, "ncclGetVersion");
  find(calls.unique_id, "ncclGetUniqueId");
  find(calls.init, "ncclCommInitRankConfig");
  find(calls.abort, "ncclCommAbort");
  find(calls.async_error, "ncclCommGetAsyncError");
  find(calls.error_string, "ncclGetErrorString");
  find(calls.last_error, "ncclGetLastError");
  find(calls.group_start, "ncclGroupStart");
  find(calls.group_end, "ncclGroupEnd");
  find(calls.send, "ncclSend");
  find(calls.receive, "ncclRecv");
  return calls;
}

// One file; nullptr, with the reason.
std::shared_ptr<const NcclLibrary> open_nccl_file(const fs::path& file, std::string& reason) {
  void* const opened = open_library(file.string(), reason);
  if (opened == nullptr) return nullptr;
  std::string missing;
  auto library = std::make_shared<NcclLibrary>();
  library->calls = find_nccl_calls(opened, missing);
  library->file = file;
  if (library->calls.version == nullptr || library->calls.version(&library->version) != nccl::kSuccess) {
    reason = formatted("{}: does not tell its version", file.string());
    return nullptr;
  }
  if (library->version < kOldest) {
    reason = formatted("{}: is NCCL {}, and 2.18 or later is needed", file.string(),
                       version_text(library->version));
    return nullptr;
  }
  if (!missing.empty()) {
    reason = formatted("{}: has no {}", file.string(), missing);
    return nullptr;
  }
  return library;
}

}  // namespace

const char* const kInstallNccl =
    "install it (pip install nvidia-nccl-cu12, or nvidia-nccl-cu13 for CUDA 13; Debian, Ubuntu: libnccl2), or name "
    "its file: PLIMSOLL_NCCL=/path/to/libnccl.so.2";

std::string NcclLibrary::name() const { return "NCCL " + version_text(version); }

std::vector<fs::path> nccl_places(const ReadVariable& variable) {
  return library_places(sought_nccl(), variable);
}

OpenedNccl open_nccl(const ReadVariable& variable) {
  OpenedNccl opened;
  opened.library = open_first(sought_nccl(), variable, open_nccl_file, opened.reason);
  return opened;
}

std::string NcclComm::unique_id(const NcclLibrary& library) {
  nccl::UniqueId id{};
  if (const int result = library.calls.unique_id(&id); result != nccl::kSuccess)
    throw StoppedError(formatted("NCCL: ncclGetUniqueId fails: {} ({})", library.calls.error_string(result),
                                 library.calls.last_error(nullptr)));
  return {id.internal, sizeof id.internal};
}

NcclComm::NcclComm(std::shared_ptr<const NcclLibrary> library, const std::string& id, int rank, int ranks,
                   double seconds)
    : library_(std::move(library)), rank_(rank), ranks_(ranks) {
  nccl::UniqueId shared{};
  check_internal(id.size() == sizeof shared.internal, "an id of NCCL's has another size");
  std::memcpy(shared.internal, id.data(), id.size());
  nccl::Config config;
  config.blocking = 0;
  config.max_ctas = kNcclChannels;
  try {
    wait_for(library_->calls.init(&comm_, ranks_, shared, rank_, &config), "ncclCommInitRankConfig", seconds);
  } catch (...) {
    abort();
    throw;
  }
}

void NcclComm::fail(int result, const char* call) const {
  const char* const more = library_->calls.last_error(comm_);
  const std::string detail = more == nullptr || *more == '\0' ? "" : formatted(" ({})", more);
  throw StoppedError(formatted("{}: {} fails: {}{}{}", library_->name(), call,
                               library_->calls.error_string(result), detail, kWhatToDo));
}

void NcclComm::require(int result, const char* call) const {
  if (result != nccl::kSuccess && result != nccl::kInProgress) fail(result, call);
}

void NcclComm::wait_for(int result, const char* call, double seconds) const {
  using Clock = std::chrono::steady_clock;
  constexpr int kSpins = 200;
  const auto begin = Clock::now();
  for (int spins = 0; result == nccl::kInProgress; ++spins) {
    if (std::chrono::duration<double>(Clock::now() - begin).count() > seconds)
      throw StoppedError(formatted("{}: {}: the other ranks do not answer within {} s{}", library_->name(),
                                   call, static_cast<int64_t>(seconds), kWhatToDo));
    if (spins < kSpins)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    const auto used = use();
    require(library_->calls.async_error(comm_, &result), "ncclCommGetAsyncError");
  }
  const auto used = use();
  require(result, call);
}

template <class Calls>
void NcclComm::group(Calls&& calls) {
  int result = nccl::kSuccess;
  {
    const auto used = use();
    require(library_->calls.group_start(), "ncclGroupStart");
    calls();
    result = library_->calls.group_end();
  }
  wait_for(result, "ncclGroupEnd", kForEver);
}

void NcclComm::exchange(const std::byte* from, std::byte* to, size_t each, void* stream) {
  group([&] {
    for (int rank = 0; rank < ranks_; ++rank) {
      const size_t at = static_cast<size_t>(rank) * each;
      require(library_->calls.send(from + at, each, nccl::kUint8, rank, comm_, stream), "ncclSend");
      require(library_->calls.receive(to + at, each, nccl::kUint8, rank, comm_, stream), "ncclRecv");
    }
  });
}

void NcclComm::all_gather(std::byte* bytes, size_t each, void* stream) {
  if (ranks_ == 1) return;
  const std::byte* const own = bytes + static_cast<size_t>(rank_) * each;
  group([&] {
    for (int rank = 0; rank < ranks_; ++rank) {
      if (rank == rank_) continue;
      const size_t at = static_cast<size_t>(rank) * each;
      require(library_->calls.send(own, each, nccl::kUint8, rank, comm_, stream), "ncclSend");
      require(library_->calls.receive(bytes + at, each, nccl::kUint8, rank, comm_, stream), "ncclRecv");
    }
  });
}

void NcclComm::require_whole() const {
  int result = nccl::kSuccess;
  const auto used = use();
  require(library_->calls.async_error(comm_, &result), "ncclCommGetAsyncError");
  require(result, "what was sent before");
}

std::unique_lock<std::mutex> NcclComm::use() const {
  std::unique_lock lock(mutex_);
  while (ends_) {
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::seconds(1));
    lock.lock();
  }
  check_internal(!aborted_, "NCCL was ended before");
  return lock;
}

void NcclComm::abort() noexcept {
  const std::lock_guard lock(mutex_);
  if (comm_ != nullptr && !std::exchange(aborted_, true)) static_cast<void>(library_->calls.abort(comm_));
}

void NcclComm::abort_to_end() noexcept {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  abort();
}

}  // namespace plimsoll::gpu
