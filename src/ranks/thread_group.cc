#include "ranks/thread_group.h"

#include <algorithm>
#include <thread>

namespace plimsoll {
namespace {

// The threads' common state: where each one's bytes are.
struct Meeting {
  explicit Meeting(int ranks) : all(ranks), places(static_cast<size_t>(ranks)) {}
  std::barrier<> all;
  std::vector<const std::byte*> places;
};

class ThreadGroup final : public Group {
 public:
  ThreadGroup(int rank, Meeting& meeting) : rank_(rank), meeting_(meeting) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(meeting_.places.size()); }

  void all_gather(std::span<std::byte> bytes) override {
    const size_t each = bytes.size() / meeting_.places.size();
    show(bytes.data());
    for (size_t r = 0; r < meeting_.places.size(); ++r)
      if (r != own()) std::copy_n(meeting_.places[r] + r * each, each, bytes.data() + r * each);
    barrier();  // nobody changes what others still read
  }

  void exchange(std::span<const std::byte> from, std::span<std::byte> to) override {
    const size_t each = to.size() / meeting_.places.size();
    show(from.data());
    for (size_t r = 0; r < meeting_.places.size(); ++r)
      std::copy_n(meeting_.places[r] + own() * each, each, to.data() + r * each);
    barrier();
  }

  void barrier() override { meeting_.all.arrive_and_wait(); }

 private:
  [[nodiscard]] size_t own() const { return static_cast<size_t>(rank_); }
  void show(const std::byte* bytes) {
    meeting_.places[own()] = bytes;
    barrier();
  }

  int rank_;
  Meeting& meeting_;
};

}  // namespace

void run_as_threads(int ranks, const std::function<void(Group&)>& work) {
  Meeting meeting(ranks);
  std::vector<std::jthread> others;
  for (int rank = 1; rank < ranks; ++rank)
    others.emplace_back([&, rank]() noexcept {
      ThreadGroup group(rank, meeting);
      work(group);
    });
  [&]() noexcept {
    ThreadGroup group(0, meeting);
    work(group);
  }();
}

}  // namespace plimsoll
