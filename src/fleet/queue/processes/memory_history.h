// A run's memory over time, in bounded space, and whether it grows without end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace plimsoll::queue {

// The highest use within each of equally long spans. Where there are too many, two become one: a run of
// days is kept in as much room as one of minutes.
class MemoryHistory {
 public:
  static constexpr size_t kMostSpans = 512;
  MemoryHistory() = default;
  // As it was kept.
  MemoryHistory(double span_seconds, std::vector<int64_t> bytes)
      : span_seconds_(span_seconds), bytes_(std::move(bytes)) {}

  // `seconds` since the start of the run; not before those that were added.
  void add(double seconds, int64_t bytes);
  [[nodiscard]] double span_seconds() const { return span_seconds_; }
  // By span; one in which no sample was taken has the bytes of the one before it.
  [[nodiscard]] const std::vector<int64_t>& bytes() const { return bytes_; }

 private:
  void halve();
  double span_seconds_ = 0.25;
  std::vector<int64_t> bytes_;
};

// The file of an attempt's folder. Writing gives up silently: a full disk must not end a run.
void keep(const MemoryHistory& history, const std::filesystem::path& folder);
// Nullopt where the file is absent or damaged.
std::optional<MemoryHistory> kept_memory(const std::filesystem::path& folder);

// Growth that continues: in a run that does the same again and again, a leak.
struct Growth {
  double bytes_per_second = 0;  // Theil-Sen: the median of the slopes between all pairs
  // The smaller of the trend tests (Mann-Kendall) of the earlier and the later half: 4 is one chance in
  // 30,000 for a use that does not grow.
  double z = 0;
  int64_t now = 0;  // bytes, of the last span
};

// The growth over the last three quarters of the run, so that its start does not count; nullopt before it has
// lasted a minute, or 32 spans. Both halves must grow, the later at a third of the earlier's rate or more,
// and all together by 2 % and 8 MiB or more: neither a step nor a use that levels off is a leak.
std::optional<Growth> growth_of(const MemoryHistory& history);
// Seconds from the last span until it will have taken `limit`; 0 where it has.
double seconds_until(const Growth& growth, int64_t limit);

}  // namespace plimsoll::queue
