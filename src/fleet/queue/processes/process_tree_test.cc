#include "fleet/queue/processes/process_tree.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <functional>

#include "base/units.h"
#include "files/test_folder.h"
#include "fleet/queue/processes/attempt.h"

namespace plimsoll::queue {
namespace {

// A child of this process that starts some of its own; all end with the test.
class Tree {
 public:
  // Each of `count` processes does this, then reports that it is ready, and waits.
  Tree(int count, const std::function<void(const std::function<void()>& ready)>& work) {
    int pipe_of[2];
    EXPECT_EQ(pipe(pipe_of), 0);
    root_ = fork();
    if (root_ == 0) {
      for (int i = 0; i < count; ++i) {
        if (fork() != 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        work([&] { EXPECT_EQ(write(pipe_of[1], "x", 1), 1); });
        while (true) pause();
      }
      while (true) pause();
    }
    close(pipe_of[1]);
    char told = 0;
    for (int i = 0; i < count; ++i) EXPECT_EQ(read(pipe_of[0], &told, 1), 1);
    close(pipe_of[0]);
  }
  ~Tree() {
    for (const pid_t one : descendants(root_)) kill(one, SIGKILL);
    kill(root_, SIGKILL);
    waitpid(root_, nullptr, 0);
  }
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;
  [[nodiscard]] pid_t root() const { return root_; }

 private:
  pid_t root_ = -1;
};

void touch(void* pages, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 4096) static_cast<volatile char*>(pages)[i] = 1;
}

constexpr size_t kShared = 64 << 20;

// As data loaders do: each maps the same memory, reads it, and lets go of it, again and again.
TEST(ProcessTree, memory_that_changes_hands_counts_once_where_processes_stand_still) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer's own memory counts";
#endif
  const int file = memfd_create("shared", 0);
  ASSERT_EQ(ftruncate(file, kShared), 0);
  const Tree tree(3, [&](const auto& ready) {
    ready();
    while (true) {
      void* pages = mmap(nullptr, kShared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
      touch(pages, kShared);
      munmap(pages, kShared);
    }
  });
  for (int look = 0; look < 30; ++look)
    EXPECT_LT(memory_standing_still(tree.root()), int64_t{kShared} + 48 * kMiB);
  const auto processes = all_processes();
  for (const pid_t one : descendants(tree.root(), processes)) {
    EXPECT_NE(read_process(one)->state, 'T') << "it does not go on";
  }
  close(file);
}

TEST(ProcessTree, pages_of_mapped_files_are_nobodys) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer's own memory counts";
#endif
  const TestFolder folder;
  const auto path = folder.write("file", std::string(kShared, 'x'));
  const auto map_it = [&](const auto& ready) {
    const int file = open(path.c_str(), O_RDONLY);
    const volatile char* pages =
        static_cast<const char*>(mmap(nullptr, kShared, PROT_READ, MAP_SHARED, file, 0));
    int64_t sum = 0;
    for (size_t i = 0; i < kShared; i += 4096) sum += pages[i];
    EXPECT_GT(sum, 0);
    ready();
  };
  for (const int count : {1, 2}) {
    const Tree tree(count, map_it);
    const TreeMemory memory = memory_of(descendants(tree.root()));
    EXPECT_LT(memory.now, 40 * kMiB) << count;
    EXPECT_LT(memory.peak, 40 * kMiB) << count;
  }
}

TEST(ProcessTree, a_process_whose_maps_may_not_be_read_counts_beside_others) {
  const Tree tree(2, [](const auto& ready) {
    touch(mmap(nullptr, kShared, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), kShared);
    prctl(PR_SET_DUMPABLE, 0);
    ready();
  });
  EXPECT_GE(memory_of(descendants(tree.root())).now, 2 * int64_t{kShared});
}

// Its environment and its parents tell nothing of the attempt any more.
TEST(ProcessTree, what_a_lost_supervisor_saw_is_ended_and_no_other_process_with_its_number) {
  const TestFolder folder;
  const Tree seen(1, [](const auto&ready) { ready(); }), other(1, [](const auto&ready) { ready(); });
  const pid_t one = descendants(seen.root()).front(), two = descendants(other.root()).front();
  std::ofstream(folder.path() / "processes") << one << " " << read_process(one)->born << "\n"
                                             << two << " " << read_process(two)->born - 1 << "\n";
  end_marked("PLIMSOLL_QUEUE_RUN=nobody's", folder.path());
  const auto gone = read_process(one);
  EXPECT_TRUE(!gone || gone->state == 'Z');
  EXPECT_TRUE(read_process(two) && read_process(two)->state != 'Z');
}

}  // namespace
}  // namespace plimsoll::queue
