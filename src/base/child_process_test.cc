#include "base/child_process.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

ChildAnswer shell(const std::string& script, const std::string& input = "", double most_seconds = 0) {
  return run_child({"sh", "-c", script}, ChildErrors::kept, input, most_seconds);
}

TEST(ChildProcess, ReadsAndAnswers) {
  const ChildAnswer answer = shell("cat; echo problem >&2; exit 3", "what it reads");
  EXPECT_EQ(answer.code, 3);
  EXPECT_EQ(answer.output, "what it reads");
  EXPECT_EQ(answer.errors, "problem\n");
  EXPECT_FALSE(answer.late);
}

TEST(ChildProcess, MoreThanAPipeHoldsInAllDirections) {
  const std::string much(1 << 20, 'x');
  const ChildAnswer answer = shell("cat | tee /dev/stderr", much);
  EXPECT_EQ(answer.output, much);
  EXPECT_EQ(answer.errors, much);
  EXPECT_EQ(shell("exit 0", much).code, 0) << "input that nobody reads";
}

TEST(ChildProcess, EndsWhatTakesTooLong) {
  const ChildAnswer answer = shell("echo begun; exec sleep 600", "", 0.3);
  EXPECT_TRUE(answer.late);
  EXPECT_EQ(answer.code, 128 + 9);
  EXPECT_EQ(answer.output, "begun\n");
}

TEST(ChildProcess, SaysWhatEndedIt) {
  EXPECT_EQ(shell("kill -TERM $$").code, 128 + 15);
  EXPECT_EQ(run_child({"plimsoll-no-such-program"}, ChildErrors::dropped).code, 127);
}

}  // namespace
}  // namespace plimsoll
