#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "ranks/node_link.h"
#include "ranks/ordered_sum.h"
#include "ranks/thread_group.h"
#include "tensor/bf16.h"
#include "tensor/f16.h"

namespace plimsoll {
namespace {

using testing::ElementsAre;

std::vector<float> values_of(int rank, size_t count) {
  std::mt19937 draw(static_cast<unsigned>(rank + 1));
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> values(count);
  for (float& value : values) value = normal(draw) * std::exp2(static_cast<float>(draw() % 40) - 20);
  return values;
}

// Sums of each part over the ranks, as every rank has them.
std::vector<std::vector<float>> sums_of(int ranks, const std::vector<size_t>& parts) {
  size_t all = 0;
  for (const size_t part : parts) all += part;
  std::vector<std::vector<float>> results(static_cast<size_t>(ranks));
  run_as_threads(ranks, [&](Group& group) {
    std::vector<float> values = values_of(group.rank(), all);
    std::vector<RankBytes> spans;
    size_t at = 0;
    for (const size_t part : parts) {
      spans.push_back(std::as_writable_bytes(std::span(values).subspan(at, part)));
      at += part;
    }
    OrderedSum sum(group);
    sum.add(spans, DType::f32);
    results[static_cast<size_t>(group.rank())] = values;
  });
  return results;
}

TEST(Group, gathers_texts_in_the_order_of_ranks) {
  for (const int ranks : {2, 3, 4}) {
    std::vector<std::vector<std::string>> got(static_cast<size_t>(ranks));
    std::vector<std::string> said(static_cast<size_t>(ranks));
    run_as_threads(ranks, [&](Group& group) {
      const auto rank = static_cast<size_t>(group.rank());
      got[rank] = gather_texts(group, std::string(rank * 3, 'a'));
      said[rank] = broadcast_text(group, "rank " + std::to_string(rank));
    });
    for (const auto& texts : got) {
      ASSERT_EQ(texts.size(), static_cast<size_t>(ranks));
      for (size_t r = 0; r < texts.size(); ++r) EXPECT_EQ(texts[r], std::string(r * 3, 'a'));
    }
    for (const std::string& text : said) EXPECT_EQ(text, "rank 0");
  }
}

TEST(Group, alone_has_its_own_text) { EXPECT_THAT(gather_texts(alone(), "x"), ElementsAre("x")); }

// Sizes within a piece, across pieces and slices, and parts that a slice cuts.
TEST(OrderedSum, is_formed_in_the_order_of_ranks_whatever_the_parts_are) {
  constexpr size_t kPiece = size_t{1} << 18;  // elements
  const std::vector<std::vector<size_t>> cases = {
      {1}, {3, 1, 2}, {kPiece}, {kPiece * 2 + 5, 7}, {kPiece * 3 - 1, kPiece * 2 + 17, 1}};
  for (const int ranks : {2, 3, 4}) {
    for (const std::vector<size_t>& parts : cases) {
      const auto results = sums_of(ranks, parts);
      std::vector<float> expected = values_of(0, results.front().size());
      for (int rank = 1; rank < ranks; ++rank) {
        const std::vector<float> next = values_of(rank, expected.size());
        for (size_t i = 0; i < expected.size(); ++i) expected[i] += next[i];
      }
      for (const std::vector<float>& result : results)
        EXPECT_EQ(std::memcmp(result.data(), expected.data(), expected.size() * sizeof(float)), 0) << ranks;
    }
  }
}

// Each rank's pieces hold the sums, and once they are gathered all ranks have all of them: last pieces that are
// shorter, parts below a slice and across slices.
TEST(OrderedSum, of_pieces_has_the_bits_of_the_whole) {
  constexpr size_t kSlice = size_t{1} << 18;  // elements
  for (const int ranks : {2, 3, 4}) {
    const auto count = static_cast<size_t>(ranks);
    for (const std::vector<size_t>& parts :
         {std::vector<size_t>{count * 4}, std::vector<size_t>{100, 9, count * 8 - 1},
          std::vector<size_t>{kSlice * count + 3, 5, kSlice + 1}}) {
      size_t all = 0;
      for (const size_t part : parts) all += part;
      const std::vector<std::vector<float>> whole = sums_of(ranks, parts);
      run_as_threads(ranks, [&](Group& group) {
        const auto rank = static_cast<size_t>(group.rank());
        std::vector<float> values = values_of(group.rank(), all);
        const std::vector<float> own = values;
        std::vector<RankPieces> pieces;
        std::vector<bool> is_own(all);
        for (size_t at = 0; const size_t part : parts) {
          const size_t piece = (part + count - 1) / count;
          pieces.push_back(
              {std::as_writable_bytes(std::span(values).subspan(at, part)), piece * sizeof(float)});
          for (size_t i = rank * piece; i < std::min(part, (rank + 1) * piece); ++i) is_own[at + i] = true;
          at += part;
        }
        OrderedSum sum(group);
        sum.add_pieces(pieces, DType::f32);
        for (size_t i = 0; i < all; ++i)
          ASSERT_EQ(std::bit_cast<uint32_t>(values[i]),
                    std::bit_cast<uint32_t>(is_own[i] ? whole[rank][i] : own[i]))
              << i;
        sum.gather_pieces(pieces);
        EXPECT_EQ(std::memcmp(values.data(), whole[rank].data(), all * sizeof(float)), 0) << ranks;
      });
    }
  }
}

TEST(OrderedSum, of_bf16_is_rounded_once) {
  constexpr int kRanks = 3;
  const uint16_t small = bf16_from_f32(1.0F / 256), one = bf16_from_f32(1);
  std::vector<uint16_t> sums(kRanks);
  run_as_threads(kRanks, [&](Group& group) {
    std::vector<uint16_t> value = {group.leads() ? one : small};
    std::vector<RankBytes> parts = {std::as_writable_bytes(std::span(value))};
    OrderedSum(group).add(parts, DType::bf16);
    sums[static_cast<size_t>(group.rank())] = value.front();
  });
  // Rounded after each addition, a tie to even would take both small ones away.
  for (const uint16_t sum : sums) EXPECT_EQ(f32_from_bf16(sum), 1.0F + 1.0F / 128);
}

TEST(OrderedSum, of_f16_is_rounded_once_and_overflows_to_infinity) {
  run_as_threads(3, [&](Group& group) {
    std::vector<uint16_t> values = {f16_from_f32(group.leads() ? 1.0F : 1.0F / 2048), f16_from_f32(40000)};
    std::vector<RankBytes> parts = {std::as_writable_bytes(std::span(values))};
    OrderedSum(group).add(parts, DType::f16);
    EXPECT_EQ(f32_from_f16(values[0]), 1.0F + 1.0F / 1024);
    EXPECT_TRUE(std::isinf(f32_from_f16(values[1])));
  });
}

// As on a disk.
class Stored final : public ByteStore {
 public:
  explicit Stored(std::span<std::byte> bytes) : bytes_(bytes) {}
  [[nodiscard]] size_t size() const override { return bytes_.size(); }
  void read(size_t at, std::span<std::byte> to) const override {
    std::ranges::copy(bytes_.subspan(at, to.size()), to.begin());
  }
  void write(size_t at, std::span<const std::byte> from) const override {
    std::ranges::copy(from, bytes_.begin() + static_cast<ptrdiff_t>(at));
  }

 private:
  std::span<std::byte> bytes_;
};

TEST(OrderedSum, of_what_is_in_a_store_has_the_bits_of_what_is_in_memory) {
  constexpr size_t kCount = (size_t{1} << 19) + 77;
  run_as_threads(3, [&](Group& group) {
    std::vector<float> memory = values_of(group.rank(), kCount), stored = memory;
    const Stored store(std::as_writable_bytes(std::span(stored)));
    const std::vector<RankBytes> in_memory = {std::as_writable_bytes(std::span(memory))},
                                 elsewhere = {RankBytes(store)};
    OrderedSum sum(group);
    sum.add(in_memory, DType::f32);
    sum.add(elsewhere, DType::f32);
    EXPECT_EQ(std::memcmp(memory.data(), stored.data(), kCount * sizeof(float)), 0);
    const size_t piece = (kCount + 2) / 3 * sizeof(float);
    for (const RankBytes& bytes : {in_memory.front(), elsewhere.front()}) {
      const RankPieces pieces = {bytes, piece};
      sum.add_pieces(std::span(&pieces, 1), DType::f32);
      sum.gather_pieces(std::span(&pieces, 1));
    }
    EXPECT_EQ(std::memcmp(memory.data(), stored.data(), kCount * sizeof(float)), 0);
  });
}

TEST(NodeLink, passes_on_what_nodes_of_the_run_say) {
  NodeLink here, there, stranger;
  const std::string own = here.address();
  const std::string loopback = own.substr(0, own.find(' ')) + " 127.0.0.1";
  here.connect({}, 7);
  there.connect({loopback}, 7);
  stranger.connect({loopback}, 8);
  const std::string said = "rank 3 is well";
  stranger.send(std::as_bytes(std::span(said)));
  there.send(std::as_bytes(std::span(said)));
  std::vector<std::string> heard;
  for (int tries = 0; heard.empty() && tries < 1000; ++tries) {
    here.receive([&](std::span<const std::byte> bytes) {
      heard.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_THAT(heard, ElementsAre(said));
}

TEST(OrderedSum, counts_the_bytes_it_sends) {
  run_as_threads(2, [&](Group& group) {
    std::vector<float> values(1024);
    std::vector<RankBytes> parts = {std::as_writable_bytes(std::span(values))};
    OrderedSum sum(group);
    sum.add(parts, DType::f32);
    EXPECT_EQ(sum.sent_bytes(), 4096) << "half of it before the sum, half after";
    const RankPieces whole = {parts.front(), 2048};
    sum.add_pieces(std::span(&whole, 1), DType::f32);
    EXPECT_EQ(sum.sent_bytes(), 6144);
    sum.gather_pieces(std::span(&whole, 1));
    EXPECT_EQ(sum.sent_bytes(), 8192);
  });
}

}  // namespace
}  // namespace plimsoll
