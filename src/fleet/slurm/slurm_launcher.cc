#include "fleet/slurm/slurm_launcher.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/format.h"
#include "base/printable.h"
#include "base/units.h"
#include "fleet/queue/packing/planned.h"
#include "fleet/queue/processes/memory_history.h"

namespace plimsoll::slurm {

using queue::Attempt;
using queue::Entry;
using queue::State;

namespace {

constexpr double kHandOverSeconds = 60;  // and a job to show in Slurm
constexpr double kAgainSeconds = 60;     // after Slurm took no more jobs
constexpr size_t kMostInArray = 500;
constexpr int kNice = 100;  // for each priority below 0

bool has_lock(const std::filesystem::path& folder) { return access((folder / "lock").c_str(), F_OK) == 0; }

Nodes ask_for_nodes(const SlurmOptions& options) {
  const Answer answer = nodes(options.partition);
  if (!answer.ok) throw UsageError("Slurm has no nodes for this queue: " + printable(answer.problem));
  const Nodes found = read_nodes(answer.text);
  if (found.memory_bytes == 0)
    throw UsageError("Slurm has no nodes" +
                     (options.partition.empty() ? "" : " in partition " + printable(options.partition)));
  return found;
}

queue::Machine largest_of(const Nodes& nodes, const SlurmOptions& options) {
  queue::Machine node{nodes.memory_bytes - kSupervisorBytes, nodes.threads, {}, "slurm"};
  const int64_t gpu_bytes = options.gpus.empty() ? INT64_MAX / 4 : options.gpus.back().bytes;
  for (int i = 0; i < nodes.gpus; ++i) node.cards.push_back({"gpu" + std::to_string(i), gpu_bytes, 0});
  return node;
}

Entry* entry_of(std::vector<Entry>& entries, int64_t id) {
  const auto found =
      std::find_if(entries.begin(), entries.end(), [&](const Entry& one) { return one.id == id; });
  return found == entries.end() ? nullptr : &*found;
}

}  // namespace

SlurmLauncher::SlurmLauncher(queue::Store& store, queue::WorkerOptions options, SlurmOptions slurm)
    : store_(store), options_(std::move(options)), slurm_(std::move(slurm)) {}

queue::Machine SlurmLauncher::open() {
  const Nodes nodes = ask_for_nodes(slurm_);
  slurm_.gpus = types_of_nodes(std::move(slurm_.gpus), nodes.gpu_types);
  node_ = largest_of(nodes, slurm_);
  nodes_ = nodes.count;
  return {nodes.total_bytes, nodes.total_threads, {}, "slurm"};
}

void SlurmLauncher::wait(int milliseconds) { poll(nullptr, 0, milliseconds); }

void SlurmLauncher::adopt(std::vector<Entry>& entries) {
  settled_ = 0;
  std::map<int64_t, Handed> before;
  before.swap(handed_);
  for (const Entry& entry : entries) {
    if (!is_begun(entry.state)) continue;
    Handed& handed = handed_[entry.id];
    if (const auto known = before.find(entry.id);
        known != before.end() && known->second.attempt.number == entry.attempts)
      handed = std::move(known->second);
    handed.attempt = store_.attempt(entry.id, entry.attempts).value_or(Attempt{});
  }
}

bool SlurmLauncher::settle(std::vector<Entry>& entries) {
  const double now = queue::clock_now();
  bool any = false;
  if (!handed_.empty() && (now > requested_ + slurm_.poll_seconds || now < requested_))
    any = ask_slurm(entries);
  if (!any && now <= settled_ + 1 && now >= settled_) return false;
  settled_ = now;
  return settle_ended(entries) || any;
}

bool SlurmLauncher::is_due() const { return refused_ > 0 && queue::clock_now() > refused_ + kAgainSeconds; }

void SlurmLauncher::say_once(const std::string& problem) {
  if (problem != problem_ && !problem.empty()) options_.report("Slurm: " + problem);
  problem_ = problem;
}

// --- what has become of jobs

// Returns true if jobs were given up.
bool SlurmLauncher::ask_slurm(std::vector<Entry>& entries) {
  requested_ = queue::clock_now();
  std::string problem;
  const std::optional<std::vector<Job>> jobs = slurm::jobs(problem);
  say_once(problem.empty() ? "" : problem + "; asked again");
  if (!jobs) return false;
  const bool any = find_lost_hand_overs(entries, *jobs);
  std::map<std::string, const Job*> by_id;
  for (const Job& job : *jobs) by_id[job.id] = &job;
  std::vector<std::string> missing;
  for (const auto& [id, handed] : handed_)
    if (!handed.attempt.job.empty() && handed.attempt.job != queue::kJobToCome &&
        !by_id.contains(handed.attempt.job) && !(handed.job && phase_of(handed.job->state) == Phase::over))
      missing.push_back(handed.attempt.job);
  const std::vector<Job> past = remembered(missing);
  for (const Job& job : past) by_id[job.id] = &job;
  for (auto& [id, handed] : handed_) {
    if (handed.attempt.job.empty() || handed.attempt.job == queue::kJobToCome) continue;
    const auto found = by_id.find(handed.attempt.job);
    if (Entry* entry = entry_of(entries, id))
      take_word(*entry, handed, found == by_id.end() ? nullptr : found->second);
  }
  return any;
}

// Finds jobs that a worker was about to hand over when it ended, or when sbatch did not answer. Whether some
// are nowhere.
bool SlurmLauncher::find_lost_hand_overs(std::vector<Entry>& entries, const std::vector<Job>& jobs) {
  std::vector<int64_t> never;
  for (auto& [id, handed] : handed_) {
    if (handed.attempt.job != queue::kJobToCome) continue;
    const auto is_ours = [&, entry = id, number = handed.attempt.number](const Job& job) {
      const size_t place = job.id.find('_');
      const int64_t index = place == std::string::npos ? 0 : std::atoll(job.id.c_str() + place + 1);
      return job.comment == store_.folder_of(entry - index, number).string();
    };
    const auto found = std::find_if(jobs.begin(), jobs.end(), is_ours);
    const bool begun = has_lock(store_.folder_of(id, handed.attempt.number));
    if (found == jobs.end() && !begun) {
      if (queue::clock_now() > handed.attempt.started + kHandOverSeconds) never.push_back(id);
      continue;
    }
    const std::string job = found == jobs.end() ? "forgotten" : found->id;
    store_.follow(id, handed.attempt.number, [&](Entry&, Attempt& attempt) { attempt.job = job; });
    handed.attempt.job = job;
  }
  for (const int64_t id : never) {
    if (Entry* entry = entry_of(entries, id))
      *entry = store_.take_back(id, handed_.at(id).attempt.number, State::waiting, "");
    handed_.erase(id);
  }
  return !never.empty();
}

void SlurmLauncher::take_word(Entry& entry, Handed& handed, const Job* job) {
  handed.job = job == nullptr ? std::nullopt : std::optional(*job);
  const bool over = job == nullptr || phase_of(job->state) == Phase::over;
  if (over && handed.over_since == 0) handed.over_since = queue::clock_now();
  if (over) return;
  handed.over_since = 0;
  const bool running = phase_of(job->state) == Phase::running;
  const std::string note = formatted("Slurm job {}{}", job->id,
                                     running               ? " on " + job->node
                                     : job->reason.empty() ? ", pending"
                                                           : ": " + job->reason);
  const State state = running ? State::running : State::submitted;
  if (entry.note == note && entry.state == state) return;
  const bool starts = running && entry.state == State::submitted;
  entry = store_.follow(entry.id, handed.attempt.number, [&](Entry& found, Attempt& attempt) {
    found.note = note;
    found.state = state;
    if (starts) attempt.started = queue::clock_now();
    handed.attempt = attempt;
  });
  if (starts) options_.report(formatted("{}: running, {}", queue::title(entry), note));
}

// A supervisor that runs sees to it itself; a job that waits has none yet.
void SlurmLauncher::stop(const Entry& entry) {
  const auto found = handed_.find(entry.id);
  if (found == handed_.end()) return;
  Handed& handed = found->second;
  const double now = queue::clock_now();
  if (handed.cancel_requested == 0) handed.cancel_requested = now;
  if (now > handed.end_requested + 1 || now < handed.end_requested) {
    handed.end_requested = now;
    queue::ask_to_end(store_.folder_of(entry.id, entry.attempts));
  }
  const bool late = now > handed.cancel_requested + 2 * options_.grace_seconds + slurm_.poll_seconds;
  if (entry.state == State::running && !late) return;
  const std::string& job = handed.attempt.job;
  if (job.empty() || job == queue::kJobToCome || handed.cancel_sent > now - kAgainSeconds) return;
  handed.cancel_sent = now;
  requested_ = 0;
  if (const Answer answer = cancel(job); !answer.ok) say_once(answer.problem);
}

bool SlurmLauncher::settle_ended(std::vector<Entry>& entries) {
  bool any = false;
  const double now = queue::clock_now();
  for (Entry& entry : entries) {
    const auto found = handed_.find(entry.id);
    if (found == handed_.end()) continue;
    Handed& handed = found->second;
    const std::filesystem::path folder = store_.folder_of(entry.id, handed.attempt.number);
    if (handed.attempt.job.empty()) {  // this machine's own, of a worker without Slurm
      const queue::AttemptState state = queue::look_at(folder);
      if (state.life == queue::Life::alive) continue;
      if (state.life == queue::Life::never_started) {
        entry = store_.take_back(entry.id, handed.attempt.number, State::waiting, "");
        handed_.erase(found);
        any = true;
      } else {
        any |= settle_one(entry, Handed(handed), {state, false});
      }
      continue;
    }
    if (handed.over_since == 0 && !(entry.state == State::running || has_lock(folder))) continue;
    // Not known is not gone: until Slurm has answered, a job is taken to be there.
    const std::optional<Job> job = handed.job || handed.over_since > 0
                                       ? handed.job
                                       : std::optional(Job{handed.attempt.job, "RUNNING", "", "", ""});
    const auto end = ended(job, queue::read_exit(folder), has_lock(folder), limit_of(entry),
                           handed.over_since > 0 ? now - handed.over_since : 0);
    if (!end) continue;
    any |= settle_one(entry, Handed(handed), *end);
  }
  return any;
}

bool SlurmLauncher::settle_one(Entry& entry, const Handed& handed, const Ended& ended) {
  queue::AttemptState state = ended.state;
  const std::filesystem::path folder = store_.folder_of(entry.id, handed.attempt.number);
  // The log of Slurm's own part of the job: Slurm ends what takes more than was asked for, the supervisor
  // too.
  const auto slurms = readings_.of(folder / "slurm.out");
  const bool failed = state.exit && state.exit->code != 0;
  const auto own = failed ? readings_.of(folder / "log") : queue::LogVerdict{};
  if (!slurms || !own) return false;
  readings_.forget(folder);
  if (ended.canceled_there)
    store_.follow(entry.id, handed.attempt.number,
                  [](Entry& found, Attempt&) { found.stop_requested = true; });
  const bool too_much = slurms->out_of_memory;
  if (state.life == queue::Life::supervisor_lost && too_much) state = ended_by_memory();
  if (failed) state.exit->kernel_killed |= too_much && !own->out_of_memory;
  if (state.exit && state.exit->peak_bytes == 0)
    if (const auto history = queue::kept_memory(folder); history && !history->bytes().empty())
      state.exit->peak_bytes = *std::max_element(history->bytes().begin(), history->bytes().end());
  if (handed.attempt.job.empty() && state.life == queue::Life::supervisor_lost)
    queue::end_marked(queue::mark_of(store_, handed.attempt), folder);
  options_.report(queue::settle_attempt(store_, node_, entry, handed.attempt.number, state, *own));
  handed_.erase(entry.id);
  return true;
}

// --- what is handed over

double SlurmLauncher::limit_of(const Entry& entry) const {
  return time_limit(entry.seconds, slurm_.time_limit);
}

void SlurmLauncher::start(std::vector<Entry>& entries) {
  refused_ = 0;
  std::vector<queue::Waiting> waiting;
  for (Entry& entry : entries)
    if (entry.state == State::waiting && is_ready(store_, machine_for(entry), entry))
      waiting.push_back({entry.id, entry.priority, entry.seconds, entry.submitted, {}, entry.need, {}});
  queue::sort_by_rank(waiting, queue::clock_now());
  const size_t room = slurm_.most_jobs - std::min(slurm_.most_jobs, handed_.size());
  if (waiting.size() > room) waiting.resize(room);
  for (const std::vector<int64_t>& group : groups_of(entries, waiting)) {
    if (refused_ > 0) return;
    submit_group(entries, group);
  }
}

// Entries that follow each other and ask for the same, as those of a sweep do, are one array.
std::vector<std::vector<int64_t>> SlurmLauncher::groups_of(std::vector<Entry>& entries,
                                                           const std::vector<queue::Waiting>& waiting) const {
  std::vector<std::vector<int64_t>> groups;
  std::map<int64_t, size_t> group_of;  // by the id that would come next
  std::vector<queue::Waiting> by_id = waiting;
  std::sort(by_id.begin(), by_id.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  for (const queue::Waiting& one : by_id) {
    const Entry& entry = *entry_of(entries, one.id);
    const Entry* before = entry_of(entries, one.id - 1);
    const auto open = group_of.find(one.id);
    const bool joins = open != group_of.end() && before != nullptr && entry.attempts == 0 &&
                       before->attempts == 0 && entry.need == before->need &&
                       entry.smaller == before->smaller && limit_of(entry) == limit_of(*before) &&
                       entry.priority == before->priority && groups[open->second].size() < kMostInArray;
    if (joins) {
      groups[open->second].push_back(one.id);
      group_of[one.id + 1] = open->second;
    } else {
      groups.push_back({one.id});
      group_of[one.id + 1] = groups.size() - 1;
    }
  }
  // In the order of rank, as far as the order of submission can express it.
  std::map<int64_t, size_t> rank;
  for (size_t i = 0; i < waiting.size(); ++i) rank[waiting[i].id] = i;
  std::sort(groups.begin(), groups.end(),
            [&](const auto& a, const auto& b) { return rank[a.front()] < rank[b.front()]; });
  return groups;
}

bool SlurmLauncher::fits_cluster(const queue::Need& need) const {
  return never_fits(node_, need).empty() || spread_of(node_, nodes_, need).has_value();
}

queue::Machine SlurmLauncher::machine_for(const Entry& entry) const {
  const auto is_spread = [&](const queue::Need& need) { return spread_of(node_, nodes_, need).has_value(); };
  const bool on_several =
      is_spread(entry.need) || std::ranges::any_of(entry.smaller, [&](const queue::SmallerPlan& plan) {
        return is_spread(with_plan(entry.need, plan));
      });
  if (!on_several) return node_;
  queue::Machine all = node_;
  all.host_bytes *= nodes_;
  all.threads *= nodes_;
  for (int node = 1; node < nodes_; ++node)
    all.cards.insert(all.cards.end(), node_.cards.begin(), node_.cards.end());
  return all;
}

// The plan for a type of GPU that there is, and where its own has no room on any node, nor on several, the fastest
// that has. A budget of the host is that of a node.
void SlurmLauncher::choose_plan(Entry& entry) const {
  const std::vector<queue::SmallerPlan> plans = open_plans(machine_for(entry), entry);
  const queue::Need before = entry.need;
  entry.need = need_of_types(slurm_.gpus, entry.need, plans);
  if (!fits_cluster(entry.need)) {
    for (const queue::SmallerPlan& plan : plans) {
      if (!fits_cluster(with_plan(entry.need, plan))) continue;
      entry.need = with_plan(entry.need, plan);
      entry.seconds = plan.seconds;
      break;
    }
  }
  const auto spread = spread_of(node_, nodes_, entry.need);
  if (entry.need == before && entry.need.processes == 1) return;
  queue::bind_to_plan(entry.words, entry.need, spread ? spread->on_node : 0);
}

void SlurmLauncher::submit_group(std::vector<Entry>& entries, const std::vector<int64_t>& ids) {
  std::vector<Entry*> group;
  for (const int64_t id : ids) {
    Entry& entry = *entry_of(entries, id);
    const bool begun = store_.begin(
        id, {}, queue::clock_now(), [&](Entry& found) { choose_plan(found); }, queue::kJobToCome);
    entry = store_.entry(id);
    if (!begun) continue;
    handed_[id] = {store_.attempt(id, entry.attempts).value_or(Attempt{}), std::nullopt, 0, 0, 0};
    queue::Launch job =
        launch_of(store_, entry, handed_.at(id).attempt, options_.program, options_.grace_seconds);
    if (const Submission submission = submission_of({&entry}); submission.tasks > 1) {
      const std::vector<std::string> srun = srun_words(submission);
      job.words.insert(job.words.begin(), srun.begin(), srun.end());
    }
    write_launch(job);
    group.push_back(&entry);
  }
  // One of them was taken out in the meantime: places in an array are counted from its first id on.
  const bool whole = group.size() == ids.size();
  if (whole && !group.empty()) return hand_over(group);
  for (Entry* entry : group) hand_over({entry});
}

Submission SlurmLauncher::submission_of(const std::vector<Entry*>& group) const {
  const Entry& first = *group.front();
  const std::filesystem::path folder = store_.folder_of(first.id, first.attempts);
  Submission submission;
  submission.name =
      formatted("plimsoll-{}{}", first.id, group.size() > 1 ? "-" + std::to_string(group.back()->id) : "");
  submission.comment = folder.string();
  // Next to each attempt's log: %a is a place in the array.
  submission.output = as_pattern(folder.string()) + (group.size() > 1 ? "/slurm-%a.out" : "/slurm.out");
  const auto spread = spread_of(node_, nodes_, first.need);
  const queue::Need on_node = spread ? need_on_node(first.need, spread->on_node) : first.need;
  submission.memory_bytes = job_memory(on_node.host_bytes);
  submission.threads = spread ? on_node.threads / spread->on_node : first.need.threads;
  submission.gpus = first.need.devices;
  if (spread) {
    submission.tasks = first.need.processes;
    submission.nodes = spread->nodes;
    submission.tasks_on_node = spread->on_node;
  }
  // A cluster without the card that a run is planned for has others with as much memory.
  queue::Need of_any = first.need;
  of_any.card.clear();
  const auto type = gpu_type(slurm_.gpus, first.need);
  submission.gpu_type = type ? *type : gpu_type(slurm_.gpus, of_any).value_or("");
  submission.seconds = limit_of(first);
  submission.nice = first.priority < 0 ? kNice * -first.priority : 0;
  submission.count = group.size();
  submission.options = slurm_.options;
  if (!slurm_.partition.empty())
    submission.options.insert(submission.options.begin(), "--partition=" + slurm_.partition);
  return submission;
}

void SlurmLauncher::hand_over(const std::vector<Entry*>& group) {
  std::vector<std::string> folders;
  for (const Entry* entry : group) folders.push_back(store_.folder_of(entry->id, entry->attempts).string());
  // An array's output is next to its first run; each of the others finds its own by a link.
  for (size_t i = 0; i < group.size() && group.size() > 1; ++i) {
    const std::string there = formatted("{}/slurm-{}.out", folders.front(), i);
    unlink((folders[i] + "/slurm.out").c_str());
    if (symlink(there.c_str(), (folders[i] + "/slurm.out").c_str()) != 0) continue;  // for people alone
  }
  const Answer answer = submit(submission_of(group), job_script(options_.program, folders));
  if (!answer.ok) return refuse(group, answer);
  for (size_t i = 0; i < group.size(); ++i) {
    Entry& entry = *group[i];
    const std::string job = answer.text + (group.size() > 1 ? "_" + std::to_string(i) : "");
    entry = store_.follow(entry.id, entry.attempts, [&](Entry& found, Attempt& attempt) {
      attempt.job = job;
      found.note = "Slurm job " + job;
    });
    handed_.at(entry.id).attempt.job = job;
    options_.report(formatted("{}: submitted, Slurm job {}", queue::title(entry), job));
  }
}

void SlurmLauncher::refuse(const std::vector<Entry*>& group, const Answer& answer) {
  refused_ = answer.later ? queue::clock_now() : refused_;
  say_once(answer.problem);
  // It may have it: it is looked for before it is handed over again.
  if (answer.unknown) return;
  for (Entry* entry : group) {
    *entry = store_.take_back(entry->id, entry->attempts, answer.later ? State::waiting : State::held,
                              "Slurm does not take it: " + answer.problem);
    handed_.erase(entry->id);
  }
}

}  // namespace plimsoll::slurm
