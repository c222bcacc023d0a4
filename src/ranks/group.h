// The processes that train one run together, and what they send each other: bytes alone. Sums are formed by
// ordered_sum.h, so that bits depend on no library's order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace plimsoll {

// Every call is made by all ranks, in the same order and with the same sizes, by one thread of each.
class Group {
 public:
  virtual ~Group() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  // `bytes` holds an equal piece of each rank; a rank has filled its own, and gets those of the others.
  virtual void all_gather(std::span<std::byte> bytes) = 0;
  // Both hold an equal piece of each rank: piece r of `from` goes to rank r, piece r of `to` came from it.
  virtual void exchange(std::span<const std::byte> from, std::span<std::byte> to) = 0;
  virtual void barrier() = 0;

  [[nodiscard]] bool is_alone() const { return size() == 1; }
  // The rank that reads the clock, prints and writes.
  [[nodiscard]] bool leads() const { return rank() == 0; }
};

// A group of this process alone.
Group& alone();

// The largest value of any rank.
int64_t most_of(Group& group, int64_t mine);
// The texts of all ranks, in their order.
std::vector<std::string> gather_texts(Group& group, const std::string& mine);
// The leading rank's text; those of others do not count.
std::string broadcast_text(Group& group, const std::string& mine);

}  // namespace plimsoll
