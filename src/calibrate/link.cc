#include "calibrate/link.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "calibrate/rates_cache.h"
#include "files/atomic.h"
#include "files/file.h"
#include "files/json.h"
#include "ranks/ordered_sum.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "plimsoll-link-1";
constexpr int64_t kMostBytes = 1 << 16;
constexpr int64_t kValues = int64_t{8} << 20;  // of f32: beyond all caches
constexpr int kRounds = 5;                     // the first is not counted

std::string cpu_here() { return this_machine({}).cpu; }

// Reads what is stored of this CPU: bytes per second by number of devices; empty where nothing of use is.
nlohmann::json stored(const fs::path& folder) {
  try {
    const nlohmann::json json = read_json(link_file(folder), kMostBytes);
    if (json.is_object() && json.value("format", "") == kFormat && json.value("cpu", "") == cpu_here() &&
        json.contains("devices") && json["devices"].is_object())
      return json["devices"];
  } catch (const std::exception&) {  // what cannot be read is measured anew
  }
  return nlohmann::json::object();
}

}  // namespace

double measure_link(Group& group) {
  using Clock = std::chrono::steady_clock;
  std::vector<float> values(static_cast<size_t>(kValues), 1.0F);
  const size_t ranks = static_cast<size_t>(group.size());
  const RankPieces pieces = {std::as_writable_bytes(std::span(values)),
                             (values.size() + ranks - 1) / ranks * sizeof(float)};
  OrderedSum sum(group);
  std::vector<double> seconds;
  int64_t sent = 0;
  for (int round = 0; round < kRounds; ++round) {
    group.barrier();
    const int64_t before = sum.sent_bytes();
    const auto start = Clock::now();
    sum.add_pieces(std::span(&pieces, 1), DType::f32);
    sum.gather_pieces(std::span(&pieces, 1));
    group.barrier();
    sent = sum.sent_bytes() - before;
    if (round > 0) seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::ranges::sort(seconds);
  return static_cast<double>(sent) / seconds[seconds.size() / 2];
}

fs::path link_file(const fs::path& folder) { return folder / "link.json"; }

std::optional<double> known_link(const fs::path& folder, int64_t devices) {
  const nlohmann::json rates = stored(folder);
  const auto found = rates.find(std::to_string(devices));
  if (found == rates.end() || !found->is_number()) return std::nullopt;
  const double rate = found->get<double>();
  return std::isfinite(rate) && rate > 0 ? std::optional(rate) : std::nullopt;
}

std::optional<double> known_link(int64_t devices) {
  try {
    return known_link(cache_folder(), devices);
  } catch (const UsageError&) {  // no home, hence nothing measured
    return std::nullopt;
  }
}

void save_link(const fs::path& folder, int64_t devices, double bytes_per_second) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw StoppedError(formatted("{}: cannot be made: {}", folder.string(), error.message()));
  nlohmann::json rates = stored(folder);
  rates[std::to_string(devices)] = bytes_per_second;
  const nlohmann::json json = {{"format", kFormat}, {"cpu", cpu_here()}, {"devices", rates}};
  write_file_atomically(link_file(folder), json.dump(2) + "\n");
}

}  // namespace plimsoll
