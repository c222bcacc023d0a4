#include "fleet/queue/entry_steps.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/format.h"
#include "base/printable.h"
#include "base/units.h"
#include "fleet/queue/torch_settings.h"

namespace plimsoll::queue {
namespace {

std::vector<std::string> words_of(const Entry& entry, const std::string& program) {
  if (!entry.recipe) return entry.words;
  std::vector<std::string> words = {program};
  words.insert(words.end(), entry.words.begin(), entry.words.end());
  words.emplace_back("--no-probe");  // it takes memory that was not reserved, and the plan is fixed
  if (entry.attempts > 1) words.emplace_back("--resume");
  return words;
}

// An entry after it waits in vain until a person acts.
bool is_stuck(std::optional<State> state) {
  return !state || state == State::failed || state == State::canceled || state == State::held;
}

std::optional<State> state_of(Store& store, int64_t id) {
  const auto found = store.find(id);
  return found ? std::optional(found->state) : std::nullopt;
}

std::string note_of_stuck(int64_t id, std::optional<State> state) {
  const std::string number = std::to_string(id);
  std::string note = formatted("held: {}, which it comes after, is ", number);
  if (!state) return note + "not in the queue; plimsoll queue cancel takes out what waits for it";
  note += std::string(name_of(*state)) + "; ";
  return note + (state == State::held ? formatted("plimsoll queue show {} says why", number)
                                      : "continue it with plimsoll queue retry " + number);
}

}  // namespace

double clock_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string title(const Entry& entry) { return formatted("{} {}", entry.id, entry.name); }

std::string mark_of(const Store& store, const Attempt& attempt) {
  return "PLIMSOLL_QUEUE_RUN=" + store.folder_of(attempt.entry, attempt.number).string();
}

WorkerLock::WorkerLock(const std::filesystem::path& queue_folder) {
  const std::string path = (queue_folder / "worker.lock").string();
  file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file_ < 0) throw StoppedError(printable(path) + ": cannot be made");
  // Commands that look for a worker share the lock for a moment: a worker shares it with no one.
  do {
    if (flock(file_, LOCK_EX | LOCK_NB) == 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  } while (flock(file_, LOCK_SH | LOCK_NB) == 0);
  close(file_);
  throw UsageError("this queue has a worker already");
}

WorkerLock::~WorkerLock() { close(file_); }

bool RetryLoop::done(const std::function<void()>& step) {
  try {
    step();
    if (!problem_.empty()) report_("the queue continues");
    problem_.clear();
    return true;
  } catch (const StoppedError& error) {
    if (problem_.empty()) {
      report_(std::string(error.what()) + "; running jobs continue; retrying");
      since_ = std::chrono::steady_clock::now();
    }
    problem_ = error.what();
    std::this_thread::sleep_for(std::chrono::seconds(1));
    return false;
  }
}

void RetryLoop::give_up_after(double patience_seconds) const {
  const std::chrono::duration<double> tried = std::chrono::steady_clock::now() - since_;
  if (problem_.empty() || tried.count() < patience_seconds) return;
  throw StoppedError(formatted("{}; nothing runs, and retrying did not help for {} (--patience)", problem_,
                               format_seconds(tried.count())));
}

std::vector<SmallerPlan> open_plans(const Machine& machine, const Entry& entry) {
  if (entry.attempts == 0 || !never_fits(machine, entry.need).empty()) return entry.smaller;
  std::vector<SmallerPlan> others = entry.smaller;
  std::erase_if(others, [&](const SmallerPlan& plan) {
    return plan.processes == 0 || plan.processes == entry.need.processes;
  });
  return others;
}

std::string never_fits_at_all(const Machine& machine, const Entry& entry,
                              const std::vector<SmallerPlan>& plans) {
  std::string never = never_fits(machine, entry.need);
  for (const SmallerPlan& plan : plans)
    if (!never.empty()) never = never_fits(machine, with_plan(entry.need, plan));
  return never;
}

bool is_ready(Store& store, const Machine& machine, Entry& entry, bool cards_may_come) {
  std::string note;
  int64_t held_by = 0;
  bool ready = true, hopeless = false;
  for (const int64_t other : entry.after) {
    const std::optional<State> state = state_of(store, other);
    ready &= state == State::done;
    if (is_stuck(state)) {
      hopeless = true;
      held_by = other;
      note = note_of_stuck(other, state);
    }
  }
  if (const std::string never = never_fits_at_all(machine, entry, open_plans(machine, entry));
      note.empty() && !never.empty() && !(cards_may_come && entry.need.devices > 0)) {
    hopeless = true;
    note = formatted("held: it needs {}; where that has changed, plimsoll queue resume {}", never, entry.id);
  }
  if (hopeless)
    entry = store.change(entry.id, [&](Entry& found) {
      if (found.state != State::waiting) return false;
      found.state = State::held;
      found.held_by = held_by;
      found.note = note;
      return true;
    });
  return ready && !hopeless;
}

bool is_held_by_another(const Entry& entry) { return entry.state == State::held && entry.held_by != 0; }

void let_go_what_may_follow(Store& store, std::vector<Entry>& entries) {
  for (bool any = true; any;) {  // what comes after what was let go may follow too
    any = false;
    for (Entry& entry : entries) {
      if (!is_held_by_another(entry)) continue;
      entry = store.change(entry.id, [&](Entry& found) {
        const bool stuck = std::any_of(found.after.begin(), found.after.end(),
                                       [&](int64_t id) { return is_stuck(state_of(store, id)); });
        if (stuck || !is_held_by_another(found)) return false;
        found.state = State::waiting;
        found.note.clear();
        return any = true;
      });
    }
  }
}

namespace {

using Links = std::vector<std::pair<int64_t, int64_t>>;  // from what comes before

// Linked entries that still come after others when entries that come after nothing were taken out again and
// again: they lie on a cycle, or behind one.
std::set<int64_t> left_over(const Links& links) {
  std::map<int64_t, std::vector<int64_t>> behind;
  std::map<int64_t, int> before;
  for (const auto& [from, to] : links) {
    behind[from].push_back(to);
    (void)before[from];
    ++before[to];
  }
  std::vector<int64_t> free;
  for (const auto& [id, count] : before)
    if (count == 0) free.push_back(id);
  while (!free.empty()) {
    const int64_t id = free.back();
    free.pop_back();
    before.erase(id);
    for (const int64_t next : behind[id])
      if (--before.at(next) == 0) free.push_back(next);
  }
  std::set<int64_t> left;
  for (const auto& [id, count] : before) left.insert(id);
  return left;
}

}  // namespace

void hold_cycles(Store& store, std::vector<Entry>& entries) {
  Links links;
  std::set<int64_t> waiting;
  for (const Entry& entry : entries)
    if (entry.state == State::waiting) waiting.insert(entry.id);
  for (const Entry& entry : entries)
    for (const int64_t before : entry.after)
      if (waiting.contains(entry.id) && waiting.contains(before)) links.emplace_back(before, entry.id);
  const std::set<int64_t> behind = left_over(links);
  Links back;
  for (const auto& [from, to] : links)
    if (behind.contains(from) && behind.contains(to)) back.emplace_back(to, from);
  const std::set<int64_t> cycles = left_over(back);
  for (Entry& entry : entries) {
    if (!cycles.contains(entry.id)) continue;
    entry = store.change(entry.id, [](Entry& found) {
      if (found.state != State::waiting) return false;  // it was canceled in the meantime
      found.state = State::held;
      found.note = formatted(
          "held: it comes after itself, by way of what it comes after; plimsoll queue cancel {} takes it out",
          found.id);
      return true;
    });
  }
}

Launch launch_of(Store& store, const Entry& entry, const Attempt& attempt, const std::string& program,
                 double grace_seconds) {
  Launch job;
  store.require_in_place();  // the folders of a queue that was moved are not made again
  job.folder = store.folder_of(entry.id, attempt.number);
  std::error_code problem;
  std::filesystem::create_directories(job.folder, problem);
  if (problem)
    throw StoppedError(
        formatted("{}: cannot be made: {}", printable(job.folder.string()), problem.message()));
  job.words = words_of(entry, program);
  if (!entry.recipe) {
    for (const char* name : {"OMP_NUM_THREADS=", "MKL_NUM_THREADS=", "OPENBLAS_NUM_THREADS="})
      job.environment.push_back(name + std::to_string(std::max(1, attempt.need.threads)));
    job.environment.emplace_back("TOKENIZERS_PARALLELISM=false");
    if (attempt.need.devices > 0)
      for (std::string& one : allocator_settings(entry.words, entry.environment, entry.folder))
        job.environment.push_back(std::move(one));
  }
  job.environment.insert(job.environment.end(), entry.environment.begin(), entry.environment.end());
  job.working_folder = entry.folder;
  job.mark = mark_of(store, attempt);
  job.host_limit = entry.recipe ? 0 : attempt.need.host_bytes;  // a training is bound by its plan
  job.hands_signals_on = entry.recipe && attempt.need.processes > 1;
  job.grace_seconds = grace_seconds;
  job.mask = store.mask_of(entry.id);
  return job;
}

std::vector<Tried> tried_by(Store& store, const Entry& entry) {
  std::vector<Tried> tried;
  for (const Attempt& one : store.attempts(entry.id))
    tried.push_back({one.need, one.words == entry.words && one.environment == entry.environment});
  return tried;
}

void take_up(Store& store, double grace_seconds) {
  for (const Entry& entry : store.open_entries())
    if (is_begun(entry.state)) set_grace(store.folder_of(entry.id, entry.attempts), grace_seconds);
}

std::string settle_attempt(Store& store, const Machine& machine, Entry& entry, int number,
                           const AttemptState& state, const LogVerdict& verdict) {
  Attempt ended;
  entry = store.finish(entry.id, number, [&](Entry& found, Attempt& attempt) {
    settle(found, attempt, state, verdict, machine);
    // By the supervisor's watch too: the system's clock may have been set since.
    attempt.ended = std::max(clock_now(), attempt.started + (state.exit ? state.exit->seconds : 0));
    ended = attempt;
  });
  return formatted("{}: {}, {}{}{}", title(entry), name_of(entry.state), ended.outcome,
                   ended.peak_bytes > 0 ? ", peak " + format_bytes(ended.peak_bytes) : "",
                   ended.card_peak_bytes > 0 ? ", on a card " + format_bytes(ended.card_peak_bytes) : "");
}

}  // namespace plimsoll::queue
