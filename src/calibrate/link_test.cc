#include "calibrate/link.h"

#include <gtest/gtest.h>

#include <fstream>

#include "files/test_folder.h"
#include "ranks/thread_group.h"

namespace plimsoll {
namespace {

TEST(Link, is_known_once_it_was_measured_with_as_many_devices) {
  const TestFolder folder;
  EXPECT_EQ(known_link(folder.path(), 2), std::nullopt);
  save_link(folder.path(), 2, 9e8);
  save_link(folder.path(), 3, 7e8);
  EXPECT_EQ(known_link(folder.path(), 2), 9e8);
  EXPECT_EQ(known_link(folder.path(), 3), 7e8);
  EXPECT_EQ(known_link(folder.path(), 4), std::nullopt);
}

TEST(Link, that_cannot_be_read_is_not_known) {
  const TestFolder folder;
  for (const char* content :
       {"", "{", "[]", R"({"format": "plimsoll-link-1", "cpu": "another", "devices": {"2": 1e9}})",
        R"({"format": "plimsoll-link-1", "devices": {"2": -1}})"}) {
    std::ofstream(link_file(folder.path())) << content;
    EXPECT_EQ(known_link(folder.path(), 2), std::nullopt) << content;
  }
}

TEST(Link, is_a_rate_that_threads_have_too) {
  run_as_threads(2, [](Group& group) { EXPECT_GT(measure_link(group), 0.0); });
}

}  // namespace
}  // namespace plimsoll
