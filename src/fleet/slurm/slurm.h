// Runs Slurm's commands: sbatch, squeue, sacct, scontrol, scancel and sinfo, as they are in PATH. Their texts
// are asked for in stated formats and read with care; nothing of Slurm is linked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll::slurm {

enum class Phase : uint8_t { pending, running, over };
// The phase of Slurm's word for a state. Unknown words are `running`: the next states show what they mean.
Phase phase_of(std::string_view state);

struct Job {
  std::string id;      // "12", of an array "12_3"
  std::string state;   // Slurm's word: PENDING, RUNNING, OUT_OF_MEMORY
  std::string reason;  // why it is pending, or what became of it
  std::string node;
  std::string comment;  // as it was submitted; only squeue reports it
};

// Lines of squeue -o kQueueFormat, of sacct -P -o kAccountFormat, of scontrol show job -o. Lines without a
// job are left out.
inline constexpr const char* kQueueFormat = "%i|%T|%r|%N|%k";
inline constexpr const char* kAccountFormat = "JobID,State,NodeList";
std::vector<Job> read_queue(std::string_view text);
std::vector<Job> read_account(std::string_view text);
std::vector<Job> read_details(std::string_view text);

// The largest node of a cluster, and all nodes together.
struct Nodes {
  int count = 0;
  int64_t memory_bytes = 0, total_bytes = 0;
  int threads = 0, total_threads = 0;
  int gpus = 0;
  std::vector<std::string> gpu_types;  // of any node, each once; "" for GPUs that have no type
};
// Lines of sinfo -N -o kNodeFormat.
inline constexpr const char* kNodeFormat = "%N|%m|%c|%G";
Nodes read_nodes(std::string_view text);

struct Submission {
  std::string name, comment;
  std::string output;        // a file for what is printed before the command's own log is open
  int64_t memory_bytes = 0;  // on each node; 0: the partition's default
  int threads = 1;           // of each task
  int gpus = 0;              // of the only task; of several, one each where it is above 0
  int tasks = 1, nodes = 1;  // of several nodes a task for each process of the run
  int tasks_on_node = 1;     // at most
  std::string gpu_type;      // empty: any
  double seconds = 0;        // its time limit; 0: the partition's default
  int nice = 0;
  size_t count = 1;                  // above 1: an array
  std::vector<std::string> options;  // of the user, in front of nothing but the script
};
std::vector<std::string> sbatch_words(const Submission& submission);

// A shell script that becomes `program queue supervise FOLDER`, with the folder of its place in the array.
std::string job_script(const std::string& program, const std::vector<std::string>& folders);
// The words that start the processes of a run on the nodes of its job, in front of the run's own.
std::vector<std::string> srun_words(const Submission& submission);
// As a shell reads it back.
std::string quoted(std::string_view word);

// A folder's name in sbatch's --output, which gives '%' a meaning.
std::string as_pattern(std::string_view folder);

// Slurm's answer: `text` where `ok`, else `problem`, for people, empty where a signal ended the question;
// `later`: the same may succeed later; `unknown`: Slurm may have done it, as its answer never came.
struct Answer {
  bool ok = false, later = false, unknown = false;
  std::string text, problem;
};
// An error of sbatch that passes: limits of a user, a controller that does not answer.
bool passes(std::string_view problem);

Answer submit(const Submission& submission, const std::string& script);  // text: the job's number
Answer cancel(const std::string& job);
Answer nodes(const std::string& partition);
// All jobs of this user that Slurm still has at hand; nothing where it does not answer, with `problem`.
std::optional<std::vector<Job>> jobs(std::string& problem);
// The same jobs as the accounting remembers them, or the controller where accounting is off.
std::vector<Job> remembered(const std::vector<std::string>& ids);

}  // namespace plimsoll::slurm
