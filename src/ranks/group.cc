#include "ranks/group.h"

#include <algorithm>
#include <cstring>

namespace plimsoll {
namespace {

class Alone final : public Group {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  void all_gather(std::span<std::byte>) override {}
  void exchange(std::span<const std::byte> from, std::span<std::byte> to) override {
    std::ranges::copy(from, to.begin());
  }
  void barrier() override {}
};

std::vector<int64_t> gather_numbers(Group& group, int64_t mine) {
  std::vector<int64_t> numbers(static_cast<size_t>(group.size()));
  numbers[static_cast<size_t>(group.rank())] = mine;
  group.all_gather(std::as_writable_bytes(std::span(numbers)));
  return numbers;
}

}  // namespace

Group& alone() {
  static Alone group;
  return group;
}

int64_t most_of(Group& group, int64_t mine) { return std::ranges::max(gather_numbers(group, mine)); }

std::vector<std::string> gather_texts(Group& group, const std::string& mine) {
  const std::vector<int64_t> sizes = gather_numbers(group, std::ssize(mine));
  const auto longest = static_cast<size_t>(std::ranges::max(sizes));
  std::vector<std::byte> pieces(longest * sizes.size());
  if (!mine.empty())
    std::memcpy(pieces.data() + longest * static_cast<size_t>(group.rank()), mine.data(), mine.size());
  group.all_gather(pieces);
  std::vector<std::string> texts;
  for (size_t i = 0; i < sizes.size(); ++i)
    texts.emplace_back(reinterpret_cast<const char*>(pieces.data()) + longest * i,
                       static_cast<size_t>(sizes[i]));
  return texts;
}

std::string broadcast_text(Group& group, const std::string& mine) {
  return gather_texts(group, group.leads() ? mine : "").front();
}

}  // namespace plimsoll
