#include "nccl_calls.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "gpu/nccl.h"
#include "ranks/ordered_sum.h"
#include "ranks/thread_group.h"
#include "tensor/bf16.h"
#include "tensor/f16.h"

namespace plimsoll::gpu_check {
namespace {

constexpr size_t kValues = 4096 + 32;  // not a whole number of blocks, of whole 64 bytes in every type

std::vector<std::byte> values_of(DType dtype, int64_t rank) {
  std::mt19937 draw(static_cast<unsigned>(rank + 7));
  std::normal_distribution<float> normal(0, 1);
  std::vector<std::byte> bytes(kValues * static_cast<size_t>(size_of(dtype)));
  for (size_t i = 0; i < kValues; ++i) {
    const float value = normal(draw) * std::exp2(static_cast<float>(draw() % 20) - 10);
    const uint16_t half = dtype == DType::bf16 ? bf16_from_f32(value) : f16_from_f32(value);
    if (dtype == DType::f32)
      std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
    else
      std::memcpy(bytes.data() + i * sizeof half, &half, sizeof half);
  }
  return bytes;
}

// As the host adds them up.
std::vector<std::byte> sums_of(DType dtype, int ranks) {
  std::vector<std::byte> sums;
  run_as_threads(ranks, [&](Group& group) {
    std::vector<std::byte> own = values_of(dtype, group.rank());
    const RankBytes part{std::span(own)};
    OrderedSum(group).add(std::span(&part, 1), dtype);
    if (group.leads()) sums = std::move(own);
  });
  return sums;
}

std::string fault_of_sums(Device& device, DType dtype, int ranks) {
  const size_t each = kValues * static_cast<size_t>(size_of(dtype));
  const auto memory = device.map(static_cast<int64_t>(each) * (ranks + 1));
  for (int rank = 0; rank < ranks; ++rank)
    device.upload(memory->data() + static_cast<size_t>(rank) * each, values_of(dtype, rank));
  const size_t all = each * static_cast<size_t>(ranks);
  device.add_up_ranks({memory->data(), all}, ranks, dtype, memory->data() + all);
  std::vector<std::byte> sums(each);
  device.download(sums, memory->data() + all);
  const std::vector<std::byte> expected = sums_of(dtype, ranks);
  if (sums == expected) return "";
  const auto differs = std::ranges::mismatch(sums, expected).in1 - sums.begin();
  return "value " + std::to_string(differs / size_of(dtype)) + " of " + std::string(to_string(dtype)) +
         " over " + std::to_string(ranks) + " ranks has other bits than the host's";
}

// A rank sends all that it has to itself.
std::string fault_of_exchange(Device& device, gpu::NcclComm& comm, size_t bytes) {
  const auto memory = device.map(static_cast<int64_t>(2 * bytes));
  std::vector<std::byte> sent(bytes), got(bytes);
  for (size_t i = 0; i < bytes; ++i) sent[i] = static_cast<std::byte>(i * 7 + i / 251);
  device.upload(memory->data(), sent);
  device.run_library(
      [&](void* stream) { comm.exchange(memory->data(), memory->data() + bytes, bytes, stream); });
  device.finish_exchange([&] { comm.require_whole(); });
  device.download(got, memory->data() + bytes);
  return got == sent ? "" : std::to_string(bytes) + " bytes came back as others";
}

}  // namespace

void check_rank_sums(Device& device, const Tell& tell) {
  Outcome outcome{"ranks/sums over ranks on the card", "", {}};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int ranks : {1, 2, 3, 4})
      if (outcome.detail.empty()) outcome.detail = fault_of_sums(device, dtype, ranks);
  tell(outcome);
}

void check_nccl(Device& device, bool emulated, const Tell& tell) {
  using Clock = std::chrono::steady_clock;
  Outcome outcome{"ranks/NCCL with one rank", "", {}};
  gpu::OpenedNccl opened{nullptr, "the card is emulated"};
  if (!emulated || std::getenv("PLIMSOLL_NCCL") != nullptr) opened = gpu::open_nccl(std::getenv);
  if (opened.library == nullptr) {
    outcome.figures["skipped"] = opened.reason;
    return tell(outcome);
  }
  outcome.figures = {{"version", opened.library->version}, {"file", opened.library->file.string()}};
  try {
    const int64_t free = device.memory_left()->free;
    gpu::NcclComm comm(opened.library, gpu::NcclComm::unique_id(*opened.library), 0, 1, 60);
    for (const size_t bytes : {size_t{64}, size_t{3} << 20})
      if (outcome.detail.empty()) outcome.detail = fault_of_exchange(device, comm, bytes);
    outcome.figures["taken_bytes"] = free - device.memory_left()->free;
    const auto begin = Clock::now();
    comm.abort();
    outcome.figures["abort_seconds"] = std::chrono::duration<double>(Clock::now() - begin).count();
  } catch (const Error& error) {
    outcome.detail = error.what();
  }
  tell(outcome);
}

}  // namespace plimsoll::gpu_check
