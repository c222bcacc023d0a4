// Tests of functions of commands; tests/commands_test.py and others run whole commands.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>

#include "base/shell_word.h"
#include "base/strings.h"
#include "base/units.h"
#include "cli/help.h"
#include "cli/model/line_editor.h"
#include "cli/pages.h"
#include "cli/plan/plan_command.h"
#include "cli/usage_text.h"
#include "plan/search/run_time.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RecipeArguments, words_are_what_a_shell_reads_back) {
  RecipeArguments arguments;
  arguments.path = "it's mine.yaml";
  arguments.shortcuts["memory.device"] = "8GiB";
  arguments.shortcuts["memory.gpu"] = "RTX 3060 12GB";
  arguments.sets = {"data.columns={prompt: a b}"};
  arguments.no_probe = true;
  EXPECT_EQ(arguments.words(),
            "'it'\\''s mine.yaml' --memory 8GiB --gpu 'RTX 3060 12GB' --set 'data.columns={prompt: a b}' "
            "--no-probe");
  EXPECT_EQ(quoted(""), "''");
  EXPECT_EQ(quoted("a$b"), "'a$b'");
}

TEST(RecipeArguments, a_change_replaces_what_was_said_of_its_key_and_of_no_other) {
  RecipeArguments arguments;
  arguments.path = "r";
  arguments.sets = {"batch.micro=4", "optimizer.weight_decay=1e-3", "batch.micro_tokens=64"};
  arguments.change("batch.micro", "2");
  arguments.change("optimizer.weight_decay", "5e-4");
  EXPECT_EQ(arguments.words(),
            "r --micro-batch 2 --set batch.micro_tokens=64 --set optimizer.weight_decay=5e-4");
  arguments.change("batch.micro", "1");
  EXPECT_THAT(arguments.words(), HasSubstr("--micro-batch 1 "));
}

TEST(Ways, stand_as_commands_below_what_they_change_and_need) {
  EXPECT_EQ(ways_text({}), "");
  EXPECT_EQ(ways_text({{"plimsoll plan r --disk 2GiB", "same result", true, 3 * kGiB, 2 * kGiB, 1.5}}),
            "\n  what would fit, each planned for real:\n    same result: 3.00 GiB and 2.00 GiB of disk, " +
                duration_words(1.5) + " a step\n      plimsoll plan r --disk 2GiB");
}

std::string typed(LineEditor& editor, std::string_view bytes) {
  for (const char byte : bytes) editor.take(byte);
  return editor.text();
}

TEST(LineEditor, keys_move_and_erase_by_characters_and_words) {
  LineEditor editor;
  editor.begin();
  EXPECT_EQ(typed(editor, "one two\x1b[D\x1b[D!"), "one t!wo");
  EXPECT_EQ(typed(editor, "\x17"), "one wo");          // Ctrl-W: the word before
  EXPECT_EQ(typed(editor, "\x01>\x05<"), ">one wo<");  // Ctrl-A, Ctrl-E
  EXPECT_EQ(typed(editor, "\x1b[1;5D\x0b"), ">one ");  // back by a word, Ctrl-K
  EXPECT_EQ(typed(editor, "\x15"), "");
  // A flag of two code points, and a letter with an accent of its own, are erased whole.
  EXPECT_EQ(typed(editor, "a\xF0\x9F\x87\xA9\xF0\x9F\x87\xAA\x7f"), "a");
  EXPECT_EQ(typed(editor, "e\xCC\x81\x7f"), "a");
}

TEST(LineEditor, a_character_is_there_when_its_last_byte_is_and_broken_ones_never) {
  LineEditor editor;
  editor.begin();
  EXPECT_EQ(typed(editor, "\xC3"), "");
  EXPECT_EQ(typed(editor, "\xA4"), "\xC3\xA4");
  EXPECT_EQ(typed(editor, "\xFFx"), "\xC3\xA4x");
}

TEST(LineEditor, a_paste_is_one_line_whatever_it_holds) {
  LineEditor editor;
  editor.begin();
  EXPECT_EQ(typed(editor, "\x1b[200~a\nb\x04\x1b[201~"), "a\nb");
  EXPECT_EQ(editor.take('\r'), LineEditor::Event::entered);
}

TEST(LineEditor, earlier_lines_come_back_and_the_new_one_is_kept_meanwhile) {
  LineEditor editor;
  for (const char* line : {"first", "second", "second"}) editor.remember(line);
  editor.begin();
  typed(editor, "new");
  EXPECT_EQ(typed(editor, "\x1b[A"), "second");
  EXPECT_EQ(typed(editor, "\x1b[A"), "first");
  EXPECT_EQ(typed(editor, "\x1b[A"), "first");
  EXPECT_EQ(typed(editor, "\x1b[B\x1b[B"), "new");
  EXPECT_EQ(editor.take(4),
            LineEditor::Event::edited);  // Ctrl-D erases where there is text, and ends where not
  editor.begin();
  EXPECT_EQ(editor.take(4), LineEditor::Event::ended);
}

TEST(LineEditor, rows_break_at_the_width_and_wide_characters_take_two_columns) {
  LineEditor editor;
  editor.begin();
  typed(editor,
        "ab\xE6\x97\xA5"
        "c");  // a, b, a character of two columns, c
  const LineRows rows = lay_out("> ", editor, 5);
  ASSERT_EQ(rows.rows.size(), 2U);
  EXPECT_EQ(rows.rows[0].text, "> ab");
  EXPECT_EQ(rows.rows[1].text,
            "\xE6\x97\xA5"
            "c");
  EXPECT_EQ(rows.rows[1].columns, 3U);
  EXPECT_EQ(rows.cursor_row, 1U);
  EXPECT_EQ(rows.cursor_column, 3U);
}

// A program of two commands.
struct SmallProgram {
  SmallProgram() {
    app.name("plimsoll");
    use_help_text(app);
    use_usage_text(app);
    app.require_subcommand(1);
    CLI::App* plan = app.add_subcommand("plan", "plans a run");
    plan->add_option("recipe", recipe, "a recipe")->required();
    plan->add_option("--memory", memory, "how much may be used, as a size, which is a number with a unit");
    plan->add_option("--threads", threads, "threads")->check(at_least(1));
    app.add_subcommand("train", "trains");
  }
  std::string problem(std::vector<std::string> words) {
    std::reverse(words.begin(), words.end());
    try {
      app.parse(words);
      return "";
    } catch (const CLI::ParseError& error) {
      std::ostringstream out, problem;
      app.exit(error, out, problem);
      return problem.str();
    }
  }
  CLI::App app;
  std::string recipe, memory;
  double threads = 1;
};

TEST(UsageText, names_what_is_unknown_or_missing_and_what_was_meant) {
  EXPECT_EQ(
      SmallProgram().problem({"plna"}),
      "error: there is no command 'plna' (did you mean 'plan'?)\n  plimsoll --help lists the commands\n");
  EXPECT_EQ(SmallProgram().problem({"plan", "r", "--memry", "2"}),
            "error: plan: there is no option '--memry' (did you mean '--memory'?)\n"
            "  plimsoll plan --help lists its options\n");
  EXPECT_THAT(SmallProgram().problem({"plan"}), HasSubstr("plan: RECIPE is missing: a recipe"));
  EXPECT_THAT(SmallProgram().problem({"plan", "r", "s"}), HasSubstr("'s' is one argument too many"));
  EXPECT_EQ(SmallProgram().problem({"plan", "r", "--threads", "2"}), "");
  SmallProgram numbers;
  std::vector<int64_t> ids;
  numbers.app.add_subcommand("cancel", "cancels")->add_option("id", ids, "ids");
  EXPECT_THAT(numbers.problem({"cancel", "1", "high"}), HasSubstr("id: expected a number, found 'high'"));
}

TEST(UsageText, names_the_command_that_another_program_s_word_means) {
  EXPECT_THAT(SmallProgram().problem({"finetune"}), HasSubstr("(did you mean 'plimsoll train'?)"));
  EXPECT_THAT(SmallProgram().problem({"resume"}),
              HasSubstr("(did you mean 'plimsoll train RECIPE --resume'?)"));
  SmallProgram groups;
  CLI::App* queue = groups.app.add_subcommand("queue", "many jobs");
  queue->require_subcommand(1);
  queue->add_subcommand("cancel", "cancel jobs");
  EXPECT_THAT(groups.problem({"queue", "remove"}), HasSubstr("(did you mean 'plimsoll queue cancel'?)"));
  EXPECT_THAT(groups.problem({"cancel"}), HasSubstr("(did you mean 'plimsoll queue cancel'?)"));
  EXPECT_THAT(groups.problem({"queue", "cancle"}), HasSubstr("(did you mean 'cancel'?)"));
}

TEST(UsageText, numbers_are_whole_words_and_finite) {
  for (const char* bad : {"0", "nan", "inf", "2x", "", "-1"})
    EXPECT_THAT(SmallProgram().problem({"plan", "r", "--threads", bad}), HasSubstr("a number from 1 on"))
        << bad;
  std::string text = "0.5";
  EXPECT_EQ(share()(text), "");
  for (const char* bad : {"1.01", "-0.1", "nan", "half"}) {
    text = bad;
    EXPECT_THAT(share()(text), HasSubstr("from 0 to 1")) << bad;
  }
  for (const char* bad : {"nan", "inf", "0", "-1"}) {
    text = bad;
    EXPECT_EQ(above_zero()(text), "expected a number above 0, found '" + text + "'");
    EXPECT_EQ(between(0.1, 3600)(text), "expected a number from 0.1 to 3600, found '" + text + "'");
  }
}

TEST(HelpText, no_line_but_an_example_to_paste_is_wider_than_the_terminal) {
  const SmallProgram program;
  const HelpCommand command = read_command(*program.app.get_subcommand("plan"));
  for (const size_t width : {48U, 80U, 100U})
    for (const std::string& line : split(help_text(command, width), '\n')) {
      const bool example = line.starts_with("  plimsoll ");
      EXPECT_TRUE(example || line.size() <= width) << line;
    }
}

TEST(HelpText, manual_pages_escape_what_roff_would_read) {
  const SmallProgram program;
  HelpCommand command = read_command(*program.app.get_subcommand("plan"));
  command.options.front().meaning = ".hidden\\ \"name\"";
  EXPECT_THAT(manual_page(command), HasSubstr("\n\\&.hidden\\e \\(dqname\\(dq\n"));
}

TEST(Pages, every_command_has_one_whose_exit_codes_are_explained) {
  for (const char* name : {
           "",
#define COMMAND(name) #name,
#include "cli/commands.def"
#undef COMMAND
       }) {
    if (std::string_view(name) == "debug_dump") continue;  // hidden
    const CommandPage* page = find_page(name);
    ASSERT_NE(page, nullptr) << name;
    for (const int code : page->exits) EXPECT_FALSE(exit_meaning(code).empty()) << name << " " << code;
  }
}

}  // namespace
}  // namespace plimsoll
