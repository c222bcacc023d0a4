#include "files/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "files/file.h"
#include "files/test_folder.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string content(const fs::path& path) { return read_text(path, 1000); }

// A run with a result, a log and a checkpoint.
void write_run(const fs::path& path) {
  RunFolder run(path);
  run.begin();
  run.write("run.json", "{}");
  std::ofstream(run.begin_log("metrics.jsonl")) << "first\n";
  const auto checkpoint = run.begin_folder("checkpoint-2");
  std::ofstream(checkpoint->path() / "model.safetensors") << "weights";
  run.publish(*checkpoint, "checkpoint-2");
  run.link(path / "checkpoint-2/model.safetensors", "model.safetensors");
  run.keep_logs();
}

std::string clear_message(const fs::path& path) {
  return message_of<UsageError>([&] { RunFolder(path).require_clearable(); });
}

TEST(RunFolder, clears_what_a_run_wrote_and_nothing_else) {
  const TestFolder folder;
  const fs::path run = folder.path() / "run";
  write_run(run);
  for (const char* name : {"thesis.tmp", "notes.old", "README.md"})
    folder.write(std::string("run/") + name, "mine");
  {
    RunFolder again(run);
    EXPECT_TRUE(again.holds_run());
    again.begin();
    again.clear();
    EXPECT_FALSE(again.holds_run());
  }
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(run)) left.push_back(entry.path().filename());
  EXPECT_THAT(left, testing::UnorderedElementsAre(".plimsoll", "thesis.tmp", "notes.old", "README.md"));
}

TEST(RunFolder, what_was_changed_or_added_afterwards_is_named_and_stays) {
  const TestFolder folder;
  const fs::path run = folder.path() / "run";
  write_run(run);
  EXPECT_EQ(clear_message(run), "");
  std::ofstream(run / "metrics.jsonl", std::ios::app) << "second\n";  // logs grow
  EXPECT_EQ(clear_message(run), "");
  folder.write("run/checkpoint-2/notes.txt", "mine");
  EXPECT_THAT(clear_message(run), HasSubstr("checkpoint-2/notes.txt: was changed, or put there"));
  EXPECT_FALSE(RunFolder(run).remove_folder("checkpoint-2"));
  fs::remove(run / "checkpoint-2/notes.txt");
  for (const char* name : {"run.json", "metrics.jsonl"}) {
    const std::string before = content(run / name);
    folder.write(std::string("run/") + name, "mine\n");
    EXPECT_THAT(clear_message(run), HasSubstr(std::string(name) + ": was changed"));
    folder.write(std::string("run/") + name, before);
  }
  fs::remove(run / "run.json");
  fs::create_symlink(folder.write("mine", "{}"), run / "run.json");
  EXPECT_THAT(clear_message(run), HasSubstr("run.json: was changed"));
}

TEST(RunFolder, logs_that_a_power_cut_has_taken_are_the_runs) {
  const TestFolder folder;
  const fs::path run = folder.path() / "run";
  {
    RunFolder first(run);
    first.begin();
    std::ofstream(first.begin_log("metrics.jsonl")) << R"({"step": 1, "loss": 2})"
                                                    << "\n";
    first.keep_logs();
  }
  // Versions that flushed the mark alone: the line that it speaks of never reached the disk.
  for (const std::string& left : {std::string(), std::string(R"({"step": 1)"), std::string(400, '\0'),
                                  R"({"step": 1)" + std::string(200, '\0')}) {
    folder.write("run/metrics.jsonl", left);
    EXPECT_EQ(clear_message(run), "") << left.size();
  }
  for (const char* mine : {"mine", "{}\n", R"({"step": 9, "loss": 9})"}) {
    folder.write("run/metrics.jsonl", mine);
    EXPECT_THAT(clear_message(run), HasSubstr("metrics.jsonl: was changed")) << mine;
  }
}

TEST(RunFolder, zeros_that_a_power_cut_leaves_in_lock_and_manifest_are_no_strangers) {
  const TestFolder folder;
  const fs::path run = folder.path() / "run";
  write_run(run);
  folder.write("run/.plimsoll/lock", std::string(7, '\0'));
  std::ofstream(run / ".plimsoll/manifest.jsonl", std::ios::app) << std::string(40, '\0') << "\"}\n";
  EXPECT_EQ(clear_message(run), "");
  RunFolder again(run);
  again.begin_log("eval.jsonl");
  EXPECT_EQ(content(run / ".plimsoll/manifest.jsonl").find('\0'), std::string::npos);
}

TEST(RunFolder, names_that_others_took_are_refused_before_and_during_the_run) {
  const TestFolder folder;
  folder.write("metrics.jsonl", "another tool's\n");
  fs::create_directory(folder.path() / "checkpoint-7");
  RunFolder run(folder.path());
  EXPECT_FALSE(run.holds_run());
  EXPECT_THAT(message_of<UsageError>([&] { run.require_free({"metrics.jsonl"}); }),
              HasSubstr("checkpoint-7: is there already, and no run wrote it"));
  fs::remove(folder.path() / "checkpoint-7");
  EXPECT_THAT(message_of<UsageError>([&] { run.require_free({"metrics.jsonl"}); }),
              HasSubstr("metrics.jsonl: is there already"));
  EXPECT_NO_THROW(run.require_free({"eval.jsonl"}));
  run.begin();
  EXPECT_THROW(run.write("metrics.jsonl", "x"), StoppedError);
  EXPECT_THROW(run.begin_log("metrics.jsonl"), StoppedError);
  EXPECT_EQ(content(folder.path() / "metrics.jsonl"), "another tool's\n");
}

TEST(RunFolder, a_name_enters_before_its_file_exists_and_a_cut_off_line_counts_for_nothing) {
  const TestFolder folder;
  const fs::path run = folder.path() / "run";
  {
    RunFolder first(run);
    first.begin();
    std::ofstream(first.begin_log("events.jsonl")) << "never proven";
  }
  const fs::path manifest = run / ".plimsoll/manifest.jsonl";
  EXPECT_THAT(content(manifest), HasSubstr(R"({"kind":"log","name":"events.jsonl"})"));
  EXPECT_EQ(clear_message(run), "");
  std::ofstream(manifest, std::ios::app) << R"({"name":"thesis.txt","kind":)";
  folder.write("run/thesis.txt", "mine");
  RunFolder again(run);
  again.begin();
  again.clear();
  EXPECT_EQ(content(run / "thesis.txt"), "mine");
  EXPECT_FALSE(fs::exists(run / "events.jsonl"));
}

TEST(RunFolder, a_manifest_that_names_what_lies_elsewhere_is_damaged) {
  const TestFolder folder;
  fs::create_directory(folder.path() / ".plimsoll");
  for (const char* line : {R"({"name":"../mine","kind":"file"})", R"({"name":"a/b","kind":"file"})", "[]",
                           R"({"name":"a","kind":"pipe"})", R"({"name":"a","kind":"file","marks":7})",
                           R"({"name":"a","kind":"file","marks":{"":[1.5,7]}})",
                           R"({"name":"a","kind":"file","marks":{"":[1,4294967303]}})"}) {
    folder.write(".plimsoll/manifest.jsonl", std::string(line) + "\n");
    EXPECT_THROW(RunFolder run(folder.path()), DamagedError) << line;
  }
}

TEST(RunFolder, runs_of_earlier_versions_are_adopted_by_what_their_files_say) {
  const TestFolder folder;
  const fs::path run = folder.path() / "run";
  fs::create_directories(run / "checkpoint-4");
  folder.write("run/run.json",
               R"({"planned": {}, "measured": {}, "steps": 4, "variant": {}, "finished": false})");
  folder.write("run/metrics.jsonl",
               R"({"step": 1, "loss": 2, "grad_norm": 1, "lr": 1, "tokens": 5, "seconds": 1})"
               "\n");
  folder.write("run/events.jsonl", "another tool's\n");
  folder.write("run/checkpoint-4/trainer_state.json",
               R"({"step": 4, "fingerprint": "{}", "kernels": "", "micro_batch": 1})");
  folder.write("run/checkpoint-4/config.json", "of the run");
  folder.write("run/config.json", "of the run");
  folder.write("run/tokenizer.json", "mine");
  RunFolder old(run);
  EXPECT_TRUE(old.holds_run());
  old.begin();
  old.clear();
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(run)) left.push_back(entry.path().filename());
  EXPECT_THAT(left, testing::UnorderedElementsAre(".plimsoll", "events.jsonl", "tokenizer.json"));
}

TEST(RunFolder, notices_that_it_was_removed_and_makes_itself_again) {
  const TestFolder folder;
  const fs::path path = folder.path() / "run";
  RunFolder run(path);
  run.begin();
  EXPECT_TRUE(run.still_there());
  fs::rename(path, folder.path() / "moved");
  EXPECT_FALSE(run.still_there());
  run.make_again();
  EXPECT_TRUE(run.still_there());
  run.write("run.json", "{}");
  fs::remove_all(path);
  fs::create_directory(path);
  run.make_again();
  EXPECT_TRUE(run.still_there());
  fs::remove_all(path);
  fs::create_directory(path);
  folder.write("run/thesis", "mine");
  EXPECT_THROW(run.make_again(), UsageError);
  EXPECT_EQ(content(path / "thesis"), "mine");
}

}  // namespace
}  // namespace plimsoll
