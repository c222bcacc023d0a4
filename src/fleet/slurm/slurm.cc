#include "fleet/slurm/slurm.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "base/child_process.h"
#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "base/units.h"
#include "fleet/slurm/policy.h"

namespace plimsoll::slurm {
namespace {

constexpr double kMostSeconds = 60;  // that a command of Slurm may take
constexpr int kWarningSeconds = 120;

Answer ask(const std::vector<std::string>& words, const std::string& input = "") {
  const ChildAnswer child = run_child(words, ChildErrors::kept, input, kMostSeconds);
  Answer answer;
  answer.ok = child.code == 0 && !child.late;
  answer.text = child.output;
  if (answer.ok) return answer;
  const std::vector<std::string> lines = split(child.errors, '\n');
  for (const std::string& line : lines)
    if (!line.empty()) answer.problem += (answer.problem.empty() ? "" : "; ") + line;
  if (child.code == 127) answer.problem = words.front() + " is not there: is Slurm installed, and in PATH?";
  if (child.late) answer.problem = words.front() + " did not answer within a minute";
  // A signal, most likely Ctrl-C, which reaches this process too: nothing is known, and there is nothing to
  // report.
  if (child.code > 128 && !child.late) return {false, true, true, "", ""};
  if (answer.problem.empty()) answer.problem = formatted("{} ended with code {}", words.front(), child.code);
  answer.unknown = child.late || answer.problem.find("timed out") != std::string::npos;
  answer.later = answer.unknown || passes(answer.problem);
  return answer;
}

template <class Read>
void for_each_line(std::string_view text, Read&& read) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (end > 0) read(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

// "CANCELLED by 1000" and "CANCELLED+" are CANCELLED.
std::string state_word(std::string_view text) {
  return std::string(text.substr(0, text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_")));
}

bool is_job(std::string_view id) {
  return !id.empty() && id.find_first_not_of("0123456789_") == std::string_view::npos;
}

// The value of " NAME=value" in a line of scontrol.
std::string field(std::string_view line, std::string_view name) {
  const std::string key = formatted(" {}=", name);
  const std::string padded = " " + std::string(line);
  const size_t at = padded.find(key);
  if (at == std::string::npos) return "";
  const size_t begin = at + key.size();
  return padded.substr(begin, std::min(padded.find(' ', begin), padded.size()) - begin);
}

std::string none_is_empty(std::string text) { return text == "(null)" || text == "None" ? "" : text; }

// A whole number from 0 to `most`, as Slurm prints it ("64000", "64000+" of unlike nodes).
std::optional<int64_t> whole_number(std::string_view text, int64_t most) {
  if (text.ends_with('+')) text.remove_suffix(1);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > most)
    return std::nullopt;
  return value;
}

// "gpu:4", "gpu:a100:4(S:0-1),gpu:v100:2,shard:8": how many GPUs; adds their types to `types`.
int gpus_of(const std::string& resources, std::vector<std::string>& types) {
  constexpr int64_t kMostGpus = 1024;  // of one node
  int64_t count = 0;
  for (const std::string& one : split(resources, ',')) {
    const std::vector<std::string> parts = split(one.substr(0, one.find('(')), ':');
    const int64_t of_one = parts.front() == "gpu" ? whole_number(parts.back(), kMostGpus).value_or(0) : 0;
    if (of_one == 0) continue;
    count += of_one;
    const std::string type = parts.size() > 2 && parts[1] != "no_consume" ? parts[1] : "";
    if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
  }
  return static_cast<int>(std::min(count, kMostGpus));
}

}  // namespace

Phase phase_of(std::string_view state) {
  constexpr std::array kPending = {"PENDING",      "CONFIGURING",   "REQUEUED",    "REQUEUE_FED",
                                   "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"};
  constexpr std::array kOver = {"COMPLETED", "FAILED",        "CANCELLED", "TIMEOUT",   "NODE_FAIL",
                                "BOOT_FAIL", "OUT_OF_MEMORY", "DEADLINE",  "PREEMPTED", "REVOKED"};
  if (std::find(kPending.begin(), kPending.end(), state) != kPending.end()) return Phase::pending;
  if (std::find(kOver.begin(), kOver.end(), state) != kOver.end()) return Phase::over;
  return Phase::running;
}

std::vector<Job> read_queue(std::string_view text) {
  std::vector<Job> jobs;
  for_each_line(text, [&](std::string_view line) {
    const std::vector<std::string> parts = split(std::string(line), '|');
    if (parts.size() < 5 || !is_job(parts[0])) return;
    std::string comment = parts[4];  // the rest: a comment may hold anything
    for (size_t i = 5; i < parts.size(); ++i) comment += "|" + parts[i];
    jobs.push_back(
        {parts[0], state_word(parts[1]), none_is_empty(parts[2]), parts[3], none_is_empty(comment)});
  });
  return jobs;
}

std::vector<Job> read_account(std::string_view text) {
  std::vector<Job> jobs;
  for_each_line(text, [&](std::string_view line) {
    const std::vector<std::string> parts = split(std::string(line), '|');
    if (parts.size() >= 3 && is_job(parts[0]))
      jobs.push_back({parts[0], state_word(parts[1]), "", parts[2], ""});
  });
  return jobs;
}

std::vector<Job> read_details(std::string_view text) {
  std::vector<Job> jobs;
  for_each_line(text, [&](std::string_view line) {
    std::string id = field(line, "JobId");
    if (const std::string array = field(line, "ArrayJobId"); !array.empty())
      id = formatted("{}_{}", array, field(line, "ArrayTaskId"));
    if (is_job(id))
      jobs.push_back({id, state_word(field(line, "JobState")), none_is_empty(field(line, "Reason")),
                      none_is_empty(field(line, "NodeList")), ""});
  });
  return jobs;
}

// A line without numbers that a node can have is left out.
Nodes read_nodes(std::string_view text) {
  constexpr int64_t kMostMiB = int64_t{1} << 32, kMostThreads = 1 << 16;
  Nodes found;
  std::vector<std::string> names;  // a node of several partitions is listed for each
  for_each_line(text, [&](std::string_view line) {
    const std::vector<std::string> parts = split(std::string(line), '|');
    if (parts.size() < 4 || std::find(names.begin(), names.end(), parts[0]) != names.end()) return;
    const auto mebibytes = whole_number(parts[1], kMostMiB), cores = whole_number(parts[2], kMostThreads);
    if (!mebibytes || !cores || *cores == 0 || *mebibytes * kMiB <= kSupervisorBytes) return;
    names.push_back(parts[0]);
    ++found.count;
    const int64_t memory = *mebibytes * kMiB;
    const int threads = static_cast<int>(*cores);
    found.memory_bytes = std::max(found.memory_bytes, memory);
    found.total_bytes += memory;
    found.threads = std::max(found.threads, threads);
    found.total_threads += threads;
    found.gpus = std::max(found.gpus, gpus_of(parts[3], found.gpu_types));
  });
  return found;
}

std::vector<std::string> sbatch_words(const Submission& submission) {
  std::vector<std::string> words = {"sbatch", "--parsable", "--nodes=" + std::to_string(submission.nodes),
                                    "--ntasks=" + std::to_string(submission.tasks),
                                    // An attempt is one job: the queue decides what runs again.
                                    "--no-requeue", "--open-mode=append", "--job-name=" + submission.name,
                                    "--comment=" + submission.comment, "--output=" + submission.output,
                                    "--cpus-per-task=" + std::to_string(std::max(1, submission.threads)),
                                    // To the supervisor alone, in time for a training to save.
                                    "--signal=B:TERM@" + std::to_string(kWarningSeconds)};
  if (submission.memory_bytes > 0)
    words.push_back(formatted("--mem={}M", (submission.memory_bytes + kMiB - 1) / kMiB));
  const std::string type = submission.gpu_type.empty() ? "" : submission.gpu_type + ":";
  if (submission.tasks > 1) {
    words.push_back("--ntasks-per-node=" + std::to_string(submission.tasks_on_node));
    if (submission.gpus > 0) words.push_back(formatted("--gpus-per-task={}1", type));
  } else if (submission.gpus > 0) {
    words.push_back(formatted("--gres=gpu:{}{}", type, submission.gpus));
  }
  if (submission.seconds > 0)
    words.push_back("--time=" + std::to_string(static_cast<int64_t>(std::ceil(submission.seconds / 60))));
  if (submission.nice > 0) words.push_back("--nice=" + std::to_string(submission.nice));
  if (submission.count > 1) words.push_back("--array=0-" + std::to_string(submission.count - 1));
  words.insert(words.end(), submission.options.begin(), submission.options.end());
  return words;
}

// A step does not take over the processors of each task from its job. When one task ends badly the others are of no
// use.
std::vector<std::string> srun_words(const Submission& submission) {
  std::vector<std::string> words = {"srun", "--mpi=pmix", "-K1",
                                    "--ntasks=" + std::to_string(submission.tasks),
                                    "--cpus-per-task=" + std::to_string(std::max(1, submission.threads))};
  if (submission.gpus > 0) words.emplace_back("--gpus-per-task=1");
  return words;
}

std::string quoted(std::string_view word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::string job_script(const std::string& program, const std::vector<std::string>& folders) {
  std::string text = "#!/bin/sh\ncase \"${SLURM_ARRAY_TASK_ID:-0}\" in\n";
  for (size_t i = 0; i < folders.size(); ++i)
    text += formatted("{}) folder={} ;;\n", i, slurm::quoted(folders[i]));
  return formatted("{}esac\nexec {} queue supervise \"$folder\"\n", text, slurm::quoted(program));
}

std::string as_pattern(std::string_view folder) {
  std::string text;
  for (const char c : folder) text += c == '%' ? "%%" : std::string(1, c);
  return text;
}

bool passes(std::string_view problem) {
  constexpr std::array kPassing = {"QOSMax",
                                   "QOSGrp",
                                   "AssocMax",
                                   "AssocGrp",
                                   "MaxSubmit",
                                   "MaxJobCount",
                                   "Unable to contact",
                                   "timed out",
                                   "temporarily",
                                   "Connection refused",
                                   "Zero Bytes",
                                   "Communication",
                                   "Job violates accounting/QOS policy"};
  return std::any_of(kPassing.begin(), kPassing.end(),
                     [&](const char* one) { return problem.find(one) != std::string_view::npos; });
}

Answer submit(const Submission& submission, const std::string& script) {
  Answer answer = ask(sbatch_words(submission), script);
  // "12", or "12;cluster".
  answer.text = answer.text.substr(0, answer.text.find_first_of(";\n"));
  if (answer.ok && !is_job(answer.text))
    return {false, true, true, "", "sbatch said no number: " + answer.text};
  return answer;
}

Answer cancel(const std::string& job) { return ask({"scancel", job}); }

Answer nodes(const std::string& partition) {
  std::vector<std::string> words = {"sinfo", "--noheader", "--Node", "--format", kNodeFormat};
  if (!partition.empty()) words.push_back("--partition=" + partition);
  return ask(words);
}

std::optional<std::vector<Job>> jobs(std::string& problem) {
  const Answer answer =
      ask({"squeue", "--me", "--noheader", "--array", "--states=all", "--format", kQueueFormat});
  problem = answer.problem;
  if (!answer.ok) return std::nullopt;
  return read_queue(answer.text);
}

std::vector<Job> remembered(const std::vector<std::string>& ids) {
  if (ids.empty()) return {};
  const Answer account = ask({"sacct", "--noheader", "--parsable2", "--allocations", "--format",
                              kAccountFormat, "--jobs=" + join(ids, ",")});
  if (account.ok) return read_account(account.text);
  std::vector<Job> found;
  for (const std::string& id : ids)
    if (const Answer one = ask({"scontrol", "show", "job", "--oneliner", id}); one.ok)
      for (Job& job : read_details(one.text)) found.push_back(std::move(job));
  return found;
}

}  // namespace plimsoll::slurm
