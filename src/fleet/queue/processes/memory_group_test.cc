#include "fleet/queue/processes/memory_group.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>

namespace plimsoll::queue {
namespace {

namespace fs = std::filesystem;

// A tree of folders that looks like the kernel's: files come with a group, as far as `make` writes them.
class MemoryGroupTest : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(root_); }
  void TearDown() override { fs::remove_all(root_); }
  const fs::path root_ = fs::path(testing::TempDir()) / ("groups" + std::to_string(getpid()));
};

TEST_F(MemoryGroupTest, NoneWhereThereIsNothingToMakeItIn) {
  EXPECT_FALSE(MemoryGroup::make("x", 1, root_, ""));
  EXPECT_FALSE(MemoryGroup::make("x", 1, root_, "0::/"));
  EXPECT_FALSE(MemoryGroup::make("x", 1, root_, "4:memory:/a\n0::/\n")) << "no such folder";
  fs::create_directories(root_ / "user/session");
  EXPECT_FALSE(MemoryGroup::make("x", 1, root_, "0::/user/session\n")) << "no memory to count";
  EXPECT_FALSE(fs::exists(root_ / "user/x")) << "it left a folder behind";
}

TEST_F(MemoryGroupTest, TheKernelHoldsALimit) {
  const auto group = MemoryGroup::make("plimsoll-test-" + std::to_string(getpid()), 64 << 20);
  if (!group) GTEST_SKIP() << "no control groups may be made here";
  const fs::path folder = group->folder();
  const pid_t child = fork();
  if (child == 0) {
    if (!group->take(getpid())) _exit(3);
    const size_t size = 512 << 20;
    void* block = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::memset(block, 1, size);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  EXPECT_GT(group->kills(), 0);
  EXPECT_FALSE(MemoryGroup::make(folder.filename().string(), 1 << 20)) << "the name is taken";
}

TEST_F(MemoryGroupTest, GoesWithItsLastProcess) {
  fs::path folder;
  {
    const auto group = MemoryGroup::make("plimsoll-gone-" + std::to_string(getpid()), 64 << 20);
    if (!group) GTEST_SKIP() << "no control groups may be made here";
    folder = group->folder();
    EXPECT_TRUE(fs::exists(folder));
    EXPECT_EQ(group->kills(), 0);
  }
  EXPECT_FALSE(fs::exists(folder));
}

}  // namespace
}  // namespace plimsoll::queue
