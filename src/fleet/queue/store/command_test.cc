#include "fleet/queue/store/command.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <fstream>

#include "base/error.h"

namespace plimsoll::queue {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

Command train() {
  return {{"python", "train.py", "--batch-size", "8", "lr=1e-4", "--grad_accum=4", "--bf16", "batch_size"},
          {"BATCH=8", "MODE=a"}};
}

TEST(DisplayName, a_command_is_called_by_what_its_interpreter_runs) {
  EXPECT_EQ(display_name({"python3", "train.py", "--rank", "8"}), "train");
  EXPECT_EQ(display_name({"/usr/bin/python3.11", "-u", "scripts/sft.py"}), "sft");
  EXPECT_EQ(display_name({"accelerate", "launch", "--config_file", "a.yaml", "dpo.py"}), "dpo");
  EXPECT_EQ(display_name({"torchrun", "--nproc_per_node=2", "-m", "pkg.train"}), "pkg.train");
  EXPECT_EQ(display_name({"bash", "run.sh"}), "run");
  EXPECT_EQ(display_name({"./train.py"}), "train");
}

TEST(DisplayName, else_it_is_called_by_its_program) {
  EXPECT_EQ(display_name({"sh", "-c", "exec ./x.sh"}), "sh");
  EXPECT_EQ(display_name({"python3", "-c", "print(1)"}), "python3");
  EXPECT_EQ(display_name({"make", "train.sh"}), "make");
  EXPECT_EQ(display_name({"sleep", "5"}), "sleep");
}

TEST(ChangedCommand, values_are_replaced_where_their_names_stand) {
  EXPECT_THAT(changed_command(train(), "batch_size=2 lr=3e-4 --grad-accum=16").words,
              ElementsAre("python", "train.py", "--batch-size", "2", "lr=3e-4", "--grad_accum=16", "--bf16",
                          "batch_size"));
}

TEST(ChangedCommand, options_that_are_not_there_are_added_once) {
  Command changed = changed_command(train(), "--resume --bf16 --to=x");
  EXPECT_EQ(changed.words.size(), train().words.size() + 2);
  EXPECT_EQ(changed.words[8], "--resume");
  EXPECT_EQ(changed.words[9], "--to=x");
  EXPECT_EQ(changed_command(changed, "--resume --to=y").words[9], "--to=y");
}

TEST(ChangedCommand, what_the_words_lack_may_be_in_the_environment) {
  EXPECT_THAT(changed_command(train(), "BATCH=4").environment, ElementsAre("BATCH=4", "MODE=a"));
}

TEST(ChangedCommand, what_nothing_has_is_refused) {
  for (const char* text : {"epochs=3", "", "python=3", "resume", "--", "=3"})
    EXPECT_THROW(changed_command(train(), text), UsageError) << text;
}

TEST(Fingerprint, files_of_settings_count_by_their_contents) {
  std::string name = (fs::temp_directory_path() / "command-XXXXXX").string();
  const fs::path folder = mkdtemp(name.data());
  const auto write = [&](const char* file, const char* text) {
    fs::create_directories((folder / file).parent_path());
    std::ofstream(folder / file) << text;
  };
  write("a/c.yaml", "batch: 8\n");
  write("b/c.yaml", "batch: 8\n");
  const auto of = [&](const std::string& word, const std::string& variable = "") {
    return fingerprint({{"train", word}, {variable}}, folder, 0);
  };
  EXPECT_EQ(of("a/c.yaml"), of((folder / "b/c.yaml").string()));
  EXPECT_EQ(of("--config=a/c.yaml"), of("--config=b/c.yaml"));
  EXPECT_EQ(of("", "C=a/c.yaml"), of("", "C=b/c.yaml"));
  EXPECT_NE(of("a/c.yaml"), of("a/d.yaml"));
  const std::string before = of("a/c.yaml");
  write("a/c.yaml", "batch: 4\n");
  EXPECT_NE(of("a/c.yaml"), before);
  fs::remove_all(folder);
}

TEST(Fingerprint, tells_words_environment_folder_and_devices_apart) {
  const std::string one = fingerprint({{"a", "b"}, {}}, "/x", 0);
  EXPECT_EQ(fingerprint({{"a", "b"}, {}}, "/x", 0), one);
  EXPECT_NE(fingerprint({{"a\nb"}, {}}, "/x", 0), one);
  EXPECT_NE(fingerprint({{"a"}, {"b"}}, "/x", 0), one);
  EXPECT_NE(fingerprint({{"a", "b"}, {}}, "/y", 0), one);
  EXPECT_NE(fingerprint({{"a", "b"}, {}}, "/x", 1), one);
}

}  // namespace
}  // namespace plimsoll::queue
