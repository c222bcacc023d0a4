#include "runs/run_record.h"

#include <gmock/gmock.h>

#include "base/units.h"

namespace plimsoll {
namespace {

TEST(RunRecord, SaysWhatTheProcessTookMoreThanPlanned) {
  const auto said = [](int64_t peak, int64_t files) {
    return above_plan({.peak_rss = peak * kMiB, .files = files * kMiB}, 70 * kMiB);
  };
  EXPECT_EQ(said(70, 60), "");
  EXPECT_THAT(said(86, 48),
              testing::StartsWith("16.0 MiB above the plan are pages of the program's own files"));
  EXPECT_THAT(said(86, 47), testing::StartsWith("the process took 16.0 MiB more than planned"));
}

}  // namespace
}  // namespace plimsoll
