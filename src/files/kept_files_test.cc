#include "files/kept_files.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "files/test_folder.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

TEST(KeptFiles, are_what_they_were_when_they_were_kept) {
  const TestFolder folder;
  const std::string large(200'000, 'x');
  folder.write("a.json", "{}");
  folder.write("b.txt", large + "end");
  folder.write("empty", "");
  const KeptFiles kept(folder.path(), {"a.json", "b.txt", "empty"}, folder.path() / "temporary");
  folder.write("a.json", "[another]");
  fs::remove(folder.path() / "b.txt");
  fs::remove(folder.path() / "empty");
  EXPECT_FALSE(fs::exists(folder.path() / "temporary"));
  EXPECT_EQ(kept.names(), (std::vector<std::string>{"a.json", "b.txt", "empty"}));
  for (const std::string& name : kept.names()) kept.write(name, folder.path() / ("new-" + name));
  EXPECT_EQ(read_text(folder.path() / "new-a.json", 100), "{}");
  EXPECT_EQ(read_text(folder.path() / "new-b.txt", 300'000), large + "end");
  EXPECT_EQ(read_text(folder.path() / "new-empty", 100), "");
}

TEST(KeptFiles, that_are_absent_folders_or_huge_are_named) {
  const TestFolder folder;
  fs::create_directory(folder.path() / "folder");
  fs::resize_file(folder.write("huge", ""), uintmax_t{1} << 40);
  const auto said = [&](const std::string& name) {
    return message_of<UsageError>([&] { KeptFiles(folder.path(), {name}, folder.path() / "temporary"); });
  };
  for (const std::string name : {"absent", "folder", "huge"})
    EXPECT_TRUE(said(name).starts_with((folder.path() / name).string() + ": ")) << said(name);
  EXPECT_FALSE(fs::exists(folder.path() / "temporary"));
}

}  // namespace
}  // namespace plimsoll
