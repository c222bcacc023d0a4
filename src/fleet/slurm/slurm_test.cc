#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "base/error.h"
#include "base/units.h"
#include "fleet/slurm/policy.h"

namespace plimsoll::slurm {
namespace {

using queue::Exit;
using queue::Life;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Slurm, ReadsItsQueue) {
  const std::vector<Job> jobs = read_queue(
      "12|PENDING|Resources||/q/runs/1/1\n"
      "13_4|RUNNING|None|node7|a|b\n"
      "\n"
      "no job|RUNNING|None|node7|(null)\n"
      "14|OUT_OF_MEMORY|OutOfMemory|node7|(null)\n"
      "15|RUNNING");
  ASSERT_EQ(jobs.size(), 3U);
  EXPECT_EQ(jobs[0].reason, "Resources");
  EXPECT_EQ(jobs[0].comment, "/q/runs/1/1");
  EXPECT_EQ(jobs[1].id, "13_4");
  EXPECT_EQ(jobs[1].reason, "");
  EXPECT_EQ(jobs[1].comment, "a|b");
  EXPECT_EQ(jobs[2].state, "OUT_OF_MEMORY");
  EXPECT_EQ(jobs[2].comment, "");
}

TEST(Slurm, ReadsItsAccounts) {
  const std::vector<Job> jobs = read_account(
      "12|CANCELLED by 1000|node1\n13_4|OUT_OF_MEMORY|node2\n13_5|COMPLETED\nSlurm accounting is off\n");
  ASSERT_EQ(jobs.size(), 2U);
  EXPECT_EQ(jobs[0].state, "CANCELLED");
  EXPECT_EQ(jobs[1].id, "13_4");
  EXPECT_EQ(phase_of(jobs[1].state), Phase::over);
}

TEST(Slurm, ReadsWhatTheControllerRemembers) {
  const std::vector<Job> jobs = read_details(
      "JobId=7 ArrayJobId=2 ArrayTaskId=1 JobName=arr JobState=FAILED Reason=NonZeroExitCode NodeList=n1 X=\n"
      "JobId=9 JobName=JobState=FAILED JobState=TIMEOUT Reason=None NodeList=(null)\n");
  ASSERT_EQ(jobs.size(), 2U);
  EXPECT_EQ(jobs[0].id, "2_1");
  EXPECT_EQ(jobs[0].state, "FAILED");
  EXPECT_EQ(jobs[1].state, "TIMEOUT");
  EXPECT_EQ(jobs[1].node, "");
}

TEST(Slurm, KnowsItsLargestNode) {
  const Nodes found = read_nodes(
      "n1|4000|2|(null)\nn2|64000|16|gpu:a100:4(S:0-1)\nn2|64000|16|gpu:a100:4(S:0-1)\nn3|32000|32|gpu:2,"
      "shard:8\n");
  EXPECT_EQ(found.memory_bytes, 64000 * kMiB);
  EXPECT_EQ(found.total_bytes, 100000 * kMiB) << "a node of two partitions is one node";
  EXPECT_EQ(found.threads, 32);
  EXPECT_EQ(found.count, 3);
  EXPECT_EQ(found.total_threads, 50);
  EXPECT_EQ(found.gpus, 4);
  EXPECT_THAT(found.gpu_types, ElementsAre("a100", "")) << "n3's have no type";
  EXPECT_THAT(read_nodes("n1|4000|2|gpu:no_consume:2,gpu:t4:no_consume:2,gpu:v100:0,shard:x:4").gpu_types,
              ElementsAre("", "t4"));
}

TEST(Slurm, LeavesOutNodesWithNumbersThatNoNodeHas) {
  for (const char* line : {"n1|9223372036854775807|64|gpu:1", "n|1|1|", "n1|1000|99999999999|", "n1|-5|4|",
                           "n1|x|4|", "n1|4000|0|", "n1|4000|4.5|"})
    EXPECT_EQ(read_nodes(line).memory_bytes, 0) << line;
  EXPECT_EQ(read_nodes("n1|4000+|4|gpu:99999999999").memory_bytes, 4000 * kMiB);
  EXPECT_EQ(read_nodes("n1|4000|4|gpu:99999999999,gpu:2").gpus, 2);
}

TEST(Slurm, AsksForWhatARunNeeds) {
  Submission submission;
  submission.name = "plimsoll-1";
  submission.memory_bytes = 100 * kMiB + 1;
  submission.threads = 3;
  submission.gpus = 2;
  submission.gpu_type = "a100";
  submission.seconds = 901;
  submission.options = {"--account=lab"};
  std::vector<std::string> words = sbatch_words(submission);
  for (const char* word :
       {"--mem=101M", "--cpus-per-task=3", "--gres=gpu:a100:2", "--time=16", "--no-requeue"})
    EXPECT_THAT(words, Contains(std::string(word)));
  EXPECT_EQ(words.back(), "--account=lab");
  submission.count = 5;
  submission.gpu_type = "";
  submission.seconds = 0;
  submission.memory_bytes = 0;
  words = sbatch_words(submission);
  EXPECT_THAT(words, Contains(std::string("--array=0-4")));
  EXPECT_THAT(words, Contains(std::string("--gres=gpu:2")));
  for (const std::string& word : words)
    EXPECT_THAT(word, Not(testing::AnyOf(HasSubstr("--time"), HasSubstr("--mem"))));
}

TEST(Slurm, ARunOfSeveralProcessesIsOneTaskWhereANodeHasRoomForItAndElseATaskForEach) {
  queue::Machine node{100, 8, {{"gpu0", 90}, {"gpu1", 90}}};
  EXPECT_FALSE(spread_of(node, 9, {2, 80, 60, 2, "", 2})) << "one node has room";
  EXPECT_FALSE(spread_of(node, 9, {5, 80, 60, 5})) << "a command";
  auto spread = spread_of(node, 9, {5, 80, 100, 10, "", 5});
  ASSERT_TRUE(spread) << "two cards of each node";
  EXPECT_EQ(spread->nodes, 3);
  EXPECT_EQ(spread->on_node, 2);
  EXPECT_FALSE(spread_of(node, 2, {5, 80, 100, 10, "", 5})) << "there are only two nodes";
  EXPECT_FALSE(spread_of(node, 9, {3, 95, 60, 3, "", 3})) << "no card has so much";
  spread = spread_of(node, 9, {0, 0, 240, 4, "", 4});
  ASSERT_TRUE(spread) << "memory of one for each node";
  EXPECT_EQ(spread->nodes, 4);
  EXPECT_EQ(spread->on_node, 1);
  spread = spread_of(node, 9, {0, 0, 40, 12, "", 4});
  ASSERT_TRUE(spread) << "three threads for each";
  EXPECT_EQ(spread->nodes, 2);
  EXPECT_EQ(need_on_node({0, 0, 40, 12, "", 4}, 2), (queue::Need{0, 0, 20, 6, "", 2}));
  EXPECT_EQ(need_on_node({0, 0, 40 * kMiB, 4, "", 4, 20 * kMiB}, 2).host_bytes, 30 * kMiB + 128 * kKiB)
      << "what the processes of a node hold once is whole on each";

  Submission submission;
  submission.threads = 3;
  submission.gpus = 5;
  submission.gpu_type = "a100";
  submission.tasks = 5;
  submission.nodes = 3;
  submission.tasks_on_node = 2;
  const std::vector<std::string> words = sbatch_words(submission);
  for (const char* word :
       {"--nodes=3", "--ntasks=5", "--ntasks-per-node=2", "--cpus-per-task=3", "--gpus-per-task=a100:1"})
    EXPECT_THAT(words, Contains(std::string(word)));
  for (const std::string& word : words) EXPECT_THAT(word, Not(HasSubstr("--gres")));
  EXPECT_EQ(srun_words(submission), (std::vector<std::string>{"srun", "--mpi=pmix", "-K1", "--ntasks=5",
                                                              "--cpus-per-task=3", "--gpus-per-task=1"}));
}

TEST(Slurm, ScriptsHoldNamesOfAllKinds) {
  EXPECT_EQ(quoted("a b"), "'a b'");
  EXPECT_EQ(as_pattern("/q/100%a"), "/q/100%%a");
  EXPECT_EQ(quoted("it's; $(rm)"), "'it'\\''s; $(rm)'");
  const std::string script = job_script("/opt/pl im", {"/q/1", "/q/it's"});
  EXPECT_THAT(script, HasSubstr("1) folder='/q/it'\\''s' ;;\n"));
  EXPECT_THAT(script, HasSubstr("exec '/opt/pl im' queue supervise \"$folder\"\n"));
}

TEST(Slurm, SomeRefusalsPass) {
  EXPECT_TRUE(passes("sbatch: error: QOSMaxSubmitJobPerUserLimit"));
  EXPECT_TRUE(passes("slurm_persist_conn_open: Unable to contact slurm controller (connect failure)"));
  EXPECT_FALSE(passes("Batch job submission failed: Requested node configuration is not available"));
}

TEST(Slurm, LimitsLeaveRoom) {
  EXPECT_EQ(time_limit(60, 0), 900);
  EXPECT_EQ(time_limit(7200, 0), 1.5 * 7200 + 300);
  EXPECT_EQ(time_limit(7200, 3600), 3600);
  EXPECT_EQ(time_limit(0, 3600), 3600);
  EXPECT_EQ(time_limit(0, 0), 0);
  EXPECT_EQ(job_memory(0), 0);
  EXPECT_GT(job_memory(kMiB), kMiB);
}

queue::Need on_card(int64_t bytes, const std::string& card = "") { return {1, bytes, 0, 1, card}; }

TEST(Slurm, APlanForACardIsRunOnTheTypeThatIsThatCard) {
  const std::vector<GpuType> types = {
      read_type("l4", 22 * kGiB), read_type("a100", 80 * kGiB), {"big", 96 * kGiB}};
  EXPECT_EQ(types[1].model, "A100 80GB");
  EXPECT_EQ(gpu_type(types, on_card(kGiB, "A100 80GB")), "a100");
  EXPECT_EQ(gpu_type(types, on_card(90 * kGiB, "A100 80GB")), "big") << "a type of an unknown name may be it";
  EXPECT_EQ(gpu_type({types[0]}, on_card(kGiB, "A100 80GB")), std::nullopt);
  const std::vector<queue::SmallerPlan> plans = {{0, 9, 1, 2 * kGiB, "L4 24GB"}};
  EXPECT_EQ(need_of_types(types, on_card(kGiB, "A100 80GB"), plans).card, "A100 80GB");
  EXPECT_EQ(need_of_types({types[0]}, on_card(kGiB, "A100 80GB"), plans).card, "L4 24GB");
  EXPECT_EQ(need_of_types({types[0]}, on_card(kGiB), plans).card, "") << "a command";
}

TEST(Slurm, TakesTheSmallestGpuThatHasTheRoom) {
  const std::vector<GpuType> types = {{"l4", 24 * kGiB}, {"a100", 80 * kGiB}};
  EXPECT_EQ(gpu_type(types, on_card(20 * kGiB)), "l4");
  EXPECT_EQ(gpu_type(types, on_card(30 * kGiB)), "a100");
  EXPECT_EQ(gpu_type(types, on_card(90 * kGiB)), std::nullopt);
  EXPECT_EQ(gpu_type({}, on_card(90 * kGiB)), "");
}

std::string refusal_of(std::vector<GpuType> stated, const std::vector<std::string>& of_nodes) {
  try {
    types_of_nodes(std::move(stated), of_nodes);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

// A job that asks for a type that no node has waits for ever.
TEST(Slurm, AsksForNoTypeThatNoNodeHas) {
  const std::vector<GpuType> types = {{"l4", 24 * kGiB}, {"a100", 80 * kGiB}};
  EXPECT_EQ(types_of_nodes(types, {"a100", "", "l4"}).front().name, "l4");
  EXPECT_TRUE(types_of_nodes({}, {}).empty());
  const std::vector<GpuType> untyped = types_of_nodes({{"gpu", 12 * kGiB}}, {""});
  EXPECT_EQ(gpu_type(untyped, on_card(10 * kGiB)), "") << "--gres=gpu:1";
  EXPECT_EQ(gpu_type(untyped, on_card(13 * kGiB)), std::nullopt);
  EXPECT_THAT(refusal_of(types, {"a100", ""}), HasSubstr("their types are a100: name those"));
  EXPECT_THAT(refusal_of(types, {""}),
              HasSubstr("state one size that all of them have (--device gpu=25769803776B)"));
  EXPECT_THAT(refusal_of(types, {}), HasSubstr("--device l4=25769803776B: Slurm's nodes have no GPUs"));
}

std::optional<Job> job(const char* state) { return Job{"1", state, "", "node1", ""}; }

Exit record(int code, bool canceled = false, double seconds = 10) {
  Exit exit;
  exit.code = code;
  exit.canceled = canceled;
  exit.seconds = seconds;
  return exit;
}

TEST(SlurmEnd, ARecordOfSuccessNeedsNoWord) {
  const auto end = ended(job("RUNNING"), record(0), true, 900, 0);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->state.life, Life::ended);
  EXPECT_FALSE(ended(job("RUNNING"), record(1), true, 900, 0)) << "Slurm may yet say why";
  EXPECT_FALSE(ended(job("PENDING"), std::nullopt, false, 900, 0));
}

TEST(SlurmEnd, MemoryThatRanOut) {
  EXPECT_TRUE(ended(job("OUT_OF_MEMORY"), record(137), true, 900, 0)->state.exit->kernel_killed);
  EXPECT_FALSE(ended(job("OUT_OF_MEMORY"), record(0), true, 900, 0)->state.exit->kernel_killed)
      << "it went on without what was killed";
  EXPECT_FALSE(ended(job("OUT_OF_MEMORY"), std::nullopt, true, 900, 1)) << "its record may be on its way";
  const auto end = ended(job("OUT_OF_MEMORY"), std::nullopt, true, 900, 60);
  EXPECT_TRUE(end->state.exit->kernel_killed);
  EXPECT_EQ(end->state.exit->signal, SIGKILL);
  EXPECT_EQ(ended_by_memory().exit->signal, SIGKILL);
  EXPECT_TRUE(ended_by_memory().exit->kernel_killed);
}

TEST(SlurmEnd, CanceledThereOrTooSlow) {
  EXPECT_TRUE(ended(job("CANCELLED"), record(143, true), true, 900, 0)->canceled_there);
  EXPECT_TRUE(ended(job("CANCELLED"), std::nullopt, false, 900, 60)->canceled_there);
  EXPECT_TRUE(ended(Job{"1", "CANCELLED", "", "", ""}, std::nullopt, false, 900, 0)->canceled_there)
      << "no node ever had it";
  EXPECT_TRUE(ended(job("TIMEOUT"), record(1), true, 900, 0)->state.exit->timed_out);
  EXPECT_TRUE(ended(job("FAILED"), record(130, true, 780), true, 900, 0)->state.exit->timed_out)
      << "it was warned";
  EXPECT_FALSE(ended(job("FAILED"), record(130, true, 100), true, 900, 0)->state.exit->timed_out);
  EXPECT_TRUE(ended(job("TIMEOUT"), std::nullopt, true, 900, 60)->state.exit->timed_out);
}

TEST(SlurmEnd, LostOrNeverBegun) {
  EXPECT_EQ(ended(job("NODE_FAIL"), std::nullopt, true, 900, 60)->state.life, Life::supervisor_lost);
  EXPECT_EQ(ended(std::nullopt, std::nullopt, true, 900, 60)->state.life, Life::supervisor_lost);
  EXPECT_FALSE(ended(std::nullopt, std::nullopt, true, 900, 1));
  EXPECT_EQ(ended(job("PREEMPTED"), record(143, true), true, 900, 0)->state.life, Life::supervisor_lost);
  EXPECT_THAT(ended(job("FAILED"), std::nullopt, false, 900, 60)->state.exit->problem,
              HasSubstr("before the command"));
}

}  // namespace
}  // namespace plimsoll::slurm
