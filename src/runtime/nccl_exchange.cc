#include "runtime/nccl_exchange.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/format.h"
#include "base/units.h"

namespace plimsoll {
namespace {

// A call of NCCL takes some 20 microseconds, in which a link of 25 GB/s moves half a megabyte.
constexpr int64_t kPieceBytes = 4 * kMiB;
constexpr size_t kTried = 64;  // bytes for each rank
constexpr double kPatience = 300;

std::shared_ptr<const gpu::NcclLibrary> find_library(RunRanks& ranks) {
  auto library = ranks.together([] {
    gpu::OpenedNccl opened = gpu::open_nccl(std::getenv);
    if (opened.library == nullptr)
      throw UsageError(
          formatted("memory.exchange: nccl: no NCCL was found ({}): {}", opened.reason, gpu::kInstallNccl));
    return opened.library;
  });
  ranks.require_same({{"NCCL", library->name()}});
  return library;
}

}  // namespace

int64_t NcclExchange::card_bytes(int64_t ranks) { return ranks == 1 ? 0 : 2 * ranks * kPieceBytes; }
int64_t NcclExchange::host_bytes(int64_t ranks) { return OrderedSum::staging_bytes(ranks) / 2; }

NcclExchange::NcclExchange(RunRanks& ranks, Device& device) : ranks_(ranks), device_(device) {
  const std::optional<gpu::MemoryLeft> before = device.memory_left();
  connect();
  try_out();
  if (before) taken_ = before->free - device.memory_left()->free;
}

NcclExchange::~NcclExchange() {
  if (ranks_.watch() != nullptr) ranks_.watch()->set_before_end({});
}

void NcclExchange::connect() {
  const auto library = find_library(ranks_);
  const std::string id = ranks_.by_leader([&] { return gpu::NcclComm::unique_id(*library); });
  Group& group = ranks_.group();
  ranks_.together([&] {
    card_ = device_.map(card_bytes(group.size()));
    host_ = device_.map_host(host_bytes(group.size()));
  });
  RunRanks::Exchange others_wait(ranks_);
  comm_ = std::make_shared<gpu::NcclComm>(library, id, group.rank(), group.size(), kPatience);
  if (ranks_.watch() != nullptr) ranks_.watch()->set_before_end([comm = comm_] { comm->abort_to_end(); });
  others_wait.done();
}

// Connections between two ranks are made, and kernels loaded, by what uses them first: not in a step.
void NcclExchange::try_out() {
  const size_t all = kTried * static_cast<size_t>(ranks_.size());
  RunRanks::Exchange others_wait(ranks_);
  clear(bytes());
  exchange(bytes().first(all), bytes().subspan(bytes().size() / 2, all));
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    add_up(bytes().subspan(bytes().size() / 2, all), dtype, bytes().data());
  all_gather(bytes().first(all));
  done();
  others_wait.done();
}

std::span<std::byte> NcclExchange::bytes() { return {card_->data(), static_cast<size_t>(card_->bytes())}; }

std::span<std::byte> NcclExchange::staging() { return {host_->data(), static_cast<size_t>(host_->bytes())}; }

template <class Work>
void NcclExchange::guarded(Work&& work) {
  try {
    work();
  } catch (...) {
    comm_->abort();
    throw;
  }
}

void NcclExchange::read(const RankBytes& tensor, size_t at, std::span<std::byte> to) {
  if (tensor.is_of_card()) return tensor.read(at, to);
  guarded([&] {
    for (size_t done = 0; done < to.size();) {
      const auto staged = staging().first(std::min(staging().size(), to.size() - done));
      finish();
      tensor.read(at + done, staged);
      device_.copy(to.data() + done, staged);
      done += staged.size();
    }
  });
}

void NcclExchange::write(const RankBytes& tensor, size_t at, std::span<const std::byte> from) {
  if (tensor.is_of_card()) return tensor.write(at, from);
  guarded([&] {
    for (size_t done = 0; done < from.size();) {
      const auto staged = staging().first(std::min(staging().size(), from.size() - done));
      finish();
      device_.copy(staged.data(), from.subspan(done, staged.size()));
      finish();
      tensor.write(at + done, staged);
      done += staged.size();
    }
  });
}

void NcclExchange::clear(std::span<std::byte> bytes) {
  if (!bytes.empty()) device_.fill(bytes, 0);
}

void NcclExchange::meets() {
  if (!meets_ && ranks_.watch() != nullptr) ranks_.watch()->enters();
  meets_ = true;
}

void NcclExchange::exchange(std::span<const std::byte> from, std::span<std::byte> to) {
  meets();
  const size_t each = from.size() / static_cast<size_t>(ranks_.size());
  guarded([&] {
    device_.run_library([comm = comm_, from, to, each](void* stream) {
      comm->exchange(from.data(), to.data(), each, stream);
    });
  });
}

void NcclExchange::all_gather(std::span<std::byte> bytes) {
  meets();
  const size_t each = bytes.size() / static_cast<size_t>(ranks_.size());
  guarded([&] {
    device_.run_library(
        [comm = comm_, bytes, each](void* stream) { comm->all_gather(bytes.data(), each, stream); });
  });
}

void NcclExchange::add_up(std::span<const std::byte> pieces, DType dtype, std::byte* sums) {
  device_.add_up_ranks(pieces, ranks_.size(), dtype, sums);
}

void NcclExchange::finish() {
  device_.finish_exchange([this] {
    try {
      comm_->require_whole();
    } catch (...) {
      comm_->abort();
      throw;
    }
  });
}

void NcclExchange::done() {
  if (!meets_) return;
  guarded([this] { finish(); });
  if (ranks_.watch() != nullptr) ranks_.watch()->leaves();
  meets_ = false;
}

}  // namespace plimsoll
