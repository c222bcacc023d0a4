#include "runtime/disk_arena.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <limits>
#include <vector>

#include "base/error.h"
#include "runtime/arena.h"
#include "runtime/io_queue.h"

namespace plimsoll {
namespace {

std::vector<std::byte> pattern(size_t bytes, unsigned seed) {
  std::vector<std::byte> made(bytes);
  for (size_t i = 0; i < bytes; ++i) made[i] = static_cast<std::byte>((i * 31 + seed * 17 + i / 251) & 0xFFU);
  return made;
}

std::filesystem::path fresh_folder(const char* name) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

TEST(DiskArena, reads_as_zeros_at_first) {
  DiskArena disk(testing::TempDir(), 10'000);
  std::vector<std::byte> bytes(10'000, std::byte{1});
  disk.read(0, bytes);
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), std::byte{0}), 10'000);
}

// Against a plain vector: whatever the alignment of offset, size and address, no neighbour's byte changes.
TEST(DiskArena, keeps_every_byte_at_any_alignment) {
  constexpr int64_t kBytes = 3 << 20;
  DiskArena disk(testing::TempDir(), kBytes);
  std::vector<std::byte> expected(kBytes);
  const Arena memory(kBytes + 4096, 1);
  unsigned seed = 0;
  for (const int64_t offset : {0, 512, 4096, 1, 700'001, 1'048'576}) {
    for (const int64_t bytes : {512, 1, 4096, 5000, 1'200'000, 1'048'576, 513}) {
      for (const int64_t shift : {0, 512, 3}) {
        const auto from = pattern(static_cast<size_t>(bytes), ++seed);
        std::byte* address = memory.data() + shift;
        std::copy(from.begin(), from.end(), address);
        disk.write(offset, {address, from.size()});
        std::copy(from.begin(), from.end(), expected.begin() + offset);
        std::fill_n(address, bytes, std::byte{0});
        disk.read(offset, {address, from.size()});
        ASSERT_TRUE(std::equal(from.begin(), from.end(), address)) << offset << " " << bytes << " " << shift;
      }
    }
  }
  std::vector<std::byte> all(kBytes);
  disk.read(0, all);
  EXPECT_EQ(all, expected);
}

TEST(DiskArena, leaves_nothing_in_its_folder_even_while_it_is_there) {
  const auto folder = fresh_folder("disk_arena_folder");
  const DiskArena disk(folder, 4096);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST(DiskArena, a_disk_with_too_little_room_is_refused_with_what_is_needed) {
  try {
    const DiskArena disk(testing::TempDir(), std::numeric_limits<int64_t>::max() / 4);
    FAIL() << "two exabytes";
  } catch (const DoesNotFitError& error) {
    EXPECT_NE(std::string(error.what()).find("2097152 TiB"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("No space left"), std::string::npos) << error.what();
  }
}

TEST(DiskArena, a_folder_that_is_not_there_stops_the_run) {
  EXPECT_THROW(DiskArena(std::filesystem::path(testing::TempDir()) / "absent" / "folder", 4096),
               StoppedError);
}

TEST(DiskArena, a_transfer_beyond_its_end_is_refused) {
  DiskArena disk(testing::TempDir(), 4096);
  std::vector<std::byte> bytes(512);
  EXPECT_THROW(disk.read(disk.bytes() - 511, bytes), InternalError);
  EXPECT_THROW(disk.write(-512, bytes), InternalError);
}

// Large enough for the test program's own log.
constexpr int64_t kLimit = int64_t{64} << 20;

// Limits the size of files for a block, as `ulimit -f` does.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &now);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
};

TEST(DiskArena, a_limit_on_the_size_of_files_is_noticed_before_the_run) {
  const FileSizeLimit limit(kLimit);
  EXPECT_THROW(DiskArena(testing::TempDir(), 2 * kLimit), DoesNotFitError);
}

TEST(DiskArena, a_write_that_fails_stops_the_run_with_the_systems_reason) {
  DiskArena disk(testing::TempDir(), 2 * kLimit);
  const FileSizeLimit limit(kLimit);
  const std::vector<std::byte> bytes(8192);
  try {
    disk.write(kLimit + 65536, bytes);
    FAIL() << "a write above the limit";
  } catch (const StoppedError& error) {
    EXPECT_NE(std::string(error.what()).find("File too large"), std::string::npos) << error.what();
  }
}

TEST(IoQueue, runs_more_jobs_than_it_holds_in_their_order) {
  IoQueue queue;
  std::vector<int> done;
  std::vector<BoundCall> jobs;
  for (int i = 0; i < 1000; ++i) jobs.emplace_back([&done, i] { done.push_back(i); });
  for (const BoundCall& job : jobs) queue.submit(job);
  queue.drain();
  EXPECT_EQ(done.size(), 1000U);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
}

TEST(IoQueue, a_failure_is_thrown_by_every_wait_until_it_is_drained) {
  IoQueue queue;
  int after = 0;
  const BoundCall fails = [] { throw StoppedError("broken"); };
  const BoundCall counts = [&] { ++after; };
  queue.submit(fails);
  const int64_t second = queue.submit(counts);
  EXPECT_THROW(queue.wait(second), StoppedError);
  EXPECT_THROW(queue.drain(), StoppedError);
  EXPECT_EQ(after, 0) << "nothing runs after a failure";
  queue.wait(queue.submit(counts));
  EXPECT_EQ(after, 1) << "drained, it works again";
}

TEST(IoQueue, an_abandoned_queue_forgets_failures) {
  IoQueue queue;
  const BoundCall fails = [] { throw StoppedError("broken"); };
  queue.submit(fails);
  queue.abandon();
  queue.drain();
  EXPECT_EQ(queue.next(), 1);
}

}  // namespace
}  // namespace plimsoll
