#include "base/system_memory.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/units.h"

namespace plimsoll {
namespace {

TEST(SystemMemory, a_machine_has_more_than_is_free_on_it) {
  EXPECT_GT(total_memory(), free_memory().bytes);
  EXPECT_GT(free_memory().bytes, 0);
}

TEST(SystemMemory, a_folder_of_tmpfs_keeps_files_in_memory) {
  if (std::filesystem::exists("/dev/shm")) {
    EXPECT_TRUE(keeps_files_in_memory("/dev/shm"));
    EXPECT_TRUE(keeps_files_in_memory("/dev/shm/no/such/folder"));
  }
  EXPECT_FALSE(keeps_files_in_memory("/proc"));
}

namespace fs = std::filesystem;

class Cgroups : public testing::Test {
 protected:
  Cgroups() : root_(fs::path(testing::TempDir()) / "plimsoll-cgroups") { fs::remove_all(root_); }
  ~Cgroups() override { fs::remove_all(root_); }

  void write(const fs::path& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  FreeMemory free(const std::string& groups) {
    return free_in_cgroups(groups, root_, {8 * kGiB, "MemAvailable"});
  }

  fs::path root_;
};

TEST_F(Cgroups, version_2_counts_what_cannot_be_given_back) {
  write("job/memory.max", "4294967296\n");
  write("job/memory.current", "3221225472\n");
  EXPECT_EQ(free("0::/job\n").bytes, kGiB);
  write("job/memory.stat",
        "anon 1073741824\nfile 2147483648\ninactive_file 1073741824\nactive_file 1073741824\n");
  EXPECT_EQ(free("0::/job\n").bytes, 3 * kGiB);
  EXPECT_EQ(free("0::/job\n").source, (root_ / "job/memory.max").string());
}

TEST_F(Cgroups, version_1_has_names_of_its_own) {
  write("memory/job/memory.limit_in_bytes", "2147483648\n");
  write("memory/job/memory.usage_in_bytes", "1610612736\n");
  write("memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 536870912\ntotal_active_file 0\n");
  EXPECT_EQ(free("9:memory:/job\n").bytes, kGiB);
}

TEST_F(Cgroups, the_tightest_group_up_the_tree_decides) {
  write("outer/memory.max", "1073741824\n");
  write("outer/memory.current", "0\n");
  write("outer/inner/memory.max", "max\n");
  write("outer/inner/memory.current", "0\n");
  EXPECT_EQ(free("0::/outer/inner\n").bytes, kGiB);
  EXPECT_EQ(free("0::/elsewhere\n").source, "MemAvailable");
  write("outer/memory.current", "2147483648\n");
  EXPECT_EQ(free("0::/outer/inner\n").bytes, 0);
}

TEST(GrowthWithinCgroups, leaves_the_limit_as_it_was) {
  const std::optional<int64_t> before = data_limit();
  {
    const GrowthWithinCgroups room;
    if (room.bytes())
      EXPECT_LE(data_limit().value(), process_memory().data + *room.bytes() + kMiB);
    else
      EXPECT_EQ(data_limit(), before);
  }
  EXPECT_EQ(data_limit(), before);
}

}  // namespace
}  // namespace plimsoll
