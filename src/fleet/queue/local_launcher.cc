#include "fleet/queue/local_launcher.h"

#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/format.h"
#include "base/printable.h"
#include "base/strings.h"
#include "base/units.h"
#include "fleet/queue/packing/planned.h"
#include "fleet/queue/store/machine_record.h"

namespace plimsoll::queue {
namespace {

// In words, the plan with which a run on cards begins instead of its own.
std::string plan_for_cards(const Entry& entry, const Need& need) {
  const std::string bytes =
      format_bytes(need.device_bytes) +
      (need.devices > 1 ? formatted(" on each of {} cards", need.devices) : std::string(" on the card"));
  if (need.processes != entry.need.processes)
    return formatted("its plan for {} of {} devices, {}", need.processes, entry.need.processes, bytes);
  const bool own = std::none_of(entry.smaller.begin(), entry.smaller.end(), [&](const SmallerPlan& plan) {
    return plan.card == need.card && plan.device_bytes > need.device_bytes &&
           (plan.processes == 0 || plan.processes == need.processes);
  });
  if (need.card != entry.need.card && own) return formatted("its plan for the {}, {}", need.card, bytes);
  return formatted("a smaller plan, {}: the largest that there is room for", bytes);
}

// A clock that is never set.
double steady_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The plan that was chosen for a run, where it is not its own.
std::optional<TakenPlan> taken_plan(const Entry& entry, const Placement& placement,
                                    const ChosenPlans& chosen) {
  const Need& need = placement.need;
  if (need == entry.need) return std::nullopt;
  TakenPlan taken{
      {need.host_bytes, placement.seconds, need.threads, need.device_bytes, need.card, need.processes}, ""};
  if (need.devices > 0) {
    taken.why = plan_for_cards(entry, need);
    return taken;
  }
  taken.why =
      need.processes == entry.need.processes
          ? formatted("a smaller plan, {} of {}", format_bytes(taken.plan.host_bytes),
                      format_bytes(entry.need.host_bytes))
          : formatted("its plan for {}{}, {}", need.processes,
                      need.processes == 1 ? " process" : " processes", format_bytes(taken.plan.host_bytes));
  if (taken.plan.threads != entry.need.threads)
    taken.why += formatted(", threads {} of {}", taken.plan.threads, entry.need.threads);
  if (const double slower = entry.seconds > 0 ? placement.seconds / entry.seconds - 1 : 0; slower > 0.005)
    taken.why += formatted(", {} % slower", std::lround(100 * slower));
  taken.why += chosen.seconds < chosen.seconds_before
                   ? formatted(": all is done in {}, not {}", format_seconds(chosen.seconds),
                               format_seconds(chosen.seconds_before))
                   : ": the largest that there is room for";
  return taken;
}

// A run that begins with a plan for other cards, or for fewer, may need its own again: where those are gone, or where
// there are more.
void keep_own_plan(Entry& entry, const SmallerPlan& taken) {
  const Need& own = entry.need;
  const bool on_other_cards = taken.card != own.card && !own.card.empty();
  if (!on_other_cards && taken.processes == own.processes) return;
  const SmallerPlan plan{own.host_bytes,   entry.seconds, own.threads,
                         own.device_bytes, own.card,      own.processes};
  if (std::find(entry.smaller.begin(), entry.smaller.end(), plan) == entry.smaller.end())
    entry.smaller.insert(entry.smaller.begin(), plan);
}

std::string silent_cards(const Machine& machine) {
  std::string silent;
  for (const MachineCard& card : machine.cards)
    if (!card.problem.empty()) silent += formatted("; {} {}", devices::short_name(card.name), card.problem);
  return silent;
}

}  // namespace

LocalLauncher::LocalLauncher(Store& store, WorkerOptions options, LocalOptions local)
    : store_(store),
      options_(std::move(options)),
      local_(std::move(local)),
      ledger_(local_.machine_folder, store.folder()) {}

LocalLauncher::~LocalLauncher() {
  for (const auto& [pid, child] : children_) close(child.file);
}

Machine LocalLauncher::open() {
  if (!ledger_.warning().empty()) options_.report(ledger_.warning());
  return local_.machine;
}

size_t LocalLauncher::running() const { return attempts_.size(); }

bool LocalLauncher::is_idle() const {
  return std::ranges::none_of(attempts_, [&](const auto& known) {
    const auto& [id, attempt] = known;
    return look_at(store_.folder_of(id, attempt.number)).life == Life::alive;
  });
}

void LocalLauncher::wait(int milliseconds) {
  std::vector<pollfd> ready;
  for (const auto& [pid, child] : children_) ready.push_back({child.file, POLLIN, 0});
  poll(ready.data(), ready.size(), milliseconds);
  std::erase_if(children_, [&](const auto& child) {
    int status = 0;
    const pid_t ended = waitpid(child.first, &status, WNOHANG);
    if (ended == 0) return false;
    if (ended > 0) ends_[child.second.entry] = status;
    close(child.second.file);
    return true;
  });
}

void LocalLauncher::adopt(std::vector<Entry>& entries) {
  attempts_.clear();
  // An entry that another scheduler has is followed by the worker that handed it over.
  std::erase_if(entries, [&](const Entry& entry) {
    if (!is_begun(entry.state)) return false;
    const auto last = store_.attempt(entry.id, entry.attempts);
    return !last || !last->job.empty();
  });
  for (const Entry& entry : entries) {
    if (entry.state != State::running) continue;
    attempts_[entry.id] = store_.attempt(entry.id, entry.attempts).value_or(Attempt{});
    if (local_.cards) local_.cards->name_whole(attempts_[entry.id].cards);
  }
  std::erase_if(stop_requested_at_, [&](const auto& requested) {
    return std::none_of(entries.begin(), entries.end(), [&](const Entry& entry) {
      return entry.id == requested.first && entry.state == State::running && entry.stop_requested;
    });
  });
  take_in_damaged();
}

// An entry whose row is damaged is held or canceled, and its run may continue: its room is taken until it
// ends.
void LocalLauncher::take_in_damaged() {
  damaged_.clear();
  for (const Attempt& attempt : store_.open_attempts()) {
    const bool runs = attempt.job.empty() && !attempts_.contains(attempt.entry) &&
                      look_at(store_.folder_of(attempt.entry, attempt.number)).life == Life::alive;
    if (runs && attempts_.emplace(attempt.entry, attempt).second) damaged_.insert(attempt.entry);
  }
}

bool LocalLauncher::let_go_damaged() {
  return std::erase_if(damaged_, [&](int64_t id) {
           const Attempt& attempt = attempts_.at(id);
           const std::filesystem::path folder = store_.folder_of(id, attempt.number);
           const Life life = look_at(folder).life;
           if (life == Life::alive) return false;
           if (life == Life::supervisor_lost) end_marked(mark_of(store_, attempt), folder);
           attempts_.erase(id);
           return true;
         }) > 0;
}

// A supervisor that was stopped by a signal does not hear it.
void LocalLauncher::stop(const Entry& entry) {
  if (entry.state != State::running) return;
  const std::filesystem::path folder = store_.folder_of(entry.id, entry.attempts);
  ask_to_end(folder);
  const double now = steady_now();
  const double requested = stop_requested_at_.try_emplace(entry.id, now).first->second;
  wake_or_end_supervisor(folder, now - requested, options_.grace_seconds);
}

bool LocalLauncher::settle(std::vector<Entry>& entries) {
  const bool ended = settle_ended(entries);
  return look_at_cards() || ended;
}

// Reads the folder of a run; if that was removed, how its supervisor ended decides. Else a command that empties the
// queue's folder would be begun again and again.
AttemptState LocalLauncher::state_of(const Entry& entry) const {
  AttemptState state = look_at(store_.folder_of(entry.id, entry.attempts));
  const auto end = ends_.find(entry.id);
  if (state.life != Life::never_started || end == ends_.end()) return state;
  if (WIFSIGNALED(end->second)) state.life = Life::supervisor_lost;
  if (!WIFEXITED(end->second) || WEXITSTATUS(end->second) != 0) return state;
  state.life = Life::ended;
  state.exit.emplace().record_removed = true;
  return state;
}

bool LocalLauncher::settle_ended(std::vector<Entry>& entries) {
  bool any = let_go_damaged();
  std::string stuck;
  for (Entry& entry : entries) {
    if (entry.state != State::running) continue;
    const AttemptState state = state_of(entry);
    if (state.life == Life::alive) continue;
    if (state.life == Life::never_started) {
      const bool coming = std::any_of(children_.begin(), children_.end(),
                                      [&](const auto& child) { return child.second.entry == entry.id; });
      if (coming) continue;
      const Attempt& attempt = attempts_.at(entry.id);
      if (const auto before = launched_.find(entry.id);
          before != launched_.end() && before->second == attempt.number)
        stuck = formatted("{}: cannot begin in {}", title(entry),
                          store_.folder_of(entry.id, attempt.number).string());
      launch_attempt(entry, attempt);
      continue;
    }
    any |= settle_one(entry, state);
  }
  if (!stuck.empty())
    throw StoppedError(printable(stuck) + ": is its disk full, or may the user start no more processes?");
  return any;
}

bool LocalLauncher::settle_one(Entry& entry, const AttemptState& state) {
  const Attempt& known = attempts_.at(entry.id);
  const std::filesystem::path folder = store_.folder_of(entry.id, known.number);
  const bool failed = state.exit && (state.exit->code != 0 || state.exit->over_limit);
  const auto verdict = failed ? readings_.of(folder / "log") : LogVerdict{};
  if (!verdict) return false;
  readings_.forget(folder);
  if (state.life == Life::supervisor_lost) {
    store_.require_in_place();  // else its record is only where the queue is now
    end_marked(mark_of(store_, known), folder);
  }
  options_.report(settle_attempt(store_, machine_of_ladder(), entry, known.number, state, *verdict));
  attempts_.erase(entry.id);
  launched_.erase(entry.id);
  ends_.erase(entry.id);
  stop_requested_at_.erase(entry.id);
  if (verdict->does_not_fit_now.empty() || entry.state != State::waiting) {
    later_.erase(entry.id);
    return true;
  }
  // The driver's report and what the run finds may differ for longer: twice as long each time.
  constexpr double kLongest = 600;
  Later& later = later_[entry.id];
  if (later.times == 0) later.since = steady_now();
  later.time = clock_now() + std::min(kLongest, std::ldexp(1.0, later.times++));
  if (options_.until_done && steady_now() - later.since >= options_.patience_seconds) {
    later_.erase(entry.id);
    hold_blocked(entry, verdict->does_not_fit_now);
  }
  return true;
}

// After memory ran out a run is given no more on a GPU than others leave there: it would wait for what never
// comes. On the host others often take much for a moment: see_to_what_others_block waits for that.
Machine LocalLauncher::machine_of_ladder() {
  if (!local_.cards) return local_.machine;
  Machine machine = local_.cards->with_room(local_.machine, runs_on_cards(), ledger_.promised_by_others());
  for (MachineCard& card : machine.cards)
    if (!card.problem.empty()) card = {};  // it takes nothing new
  return machine;
}

bool LocalLauncher::is_put_off(int64_t id) const {
  const auto later = later_.find(id);
  return later != later_.end() && clock_now() < later->second.time;
}

std::vector<pid_t> LocalLauncher::processes_of(const Attempt& attempt,
                                               std::optional<Children>& children) const {
  const AttemptState state = look_at(store_.folder_of(attempt.entry, attempt.number));
  if (state.life != Life::alive) return {};
  if (!children) children = children_of(all_processes());
  return descendants(state.supervisor, *children);
}

std::optional<RunOnCards> LocalLauncher::run_on_cards(const Attempt& attempt,
                                                      std::optional<Children>& children) const {
  if (attempt.cards.empty()) return std::nullopt;
  return RunOnCards{attempt.cards,
                    {attempt.need.device_bytes,
                     std::make_shared<const std::vector<pid_t>>(processes_of(attempt, children))}};
}

std::vector<RunOnCards> LocalLauncher::runs_on_cards() const {
  std::vector<RunOnCards> runs;
  std::optional<Children> children;
  for (const auto& [id, attempt] : attempts_)
    if (auto run = run_on_cards(attempt, children)) runs.push_back(std::move(*run));
  return runs;
}

// Takes the driver's latest report, and what runs have there. Whether cards came, stopped answering, or answer
// again.
bool LocalLauncher::look_at_cards() {
  if (!local_.cards) return false;
  const auto lines = local_.cards->take(local_.machine);
  if (!lines) return false;
  for (const std::string& line : *lines) options_.report(line);
  if (!lines->empty()) record_machine(store_.folder(), local_.machine);
  std::optional<Children> children;
  for (auto& [id, attempt] : attempts_) {
    const auto run = run_on_cards(attempt, children);
    const int64_t most = run ? local_.cards->most_on_a_card(*run).value_or(0) : 0;
    if (most <= attempt.card_peak_bytes) continue;
    attempt.card_peak_bytes = most;
    store_.saw_on_cards(id, attempt.number, most);
  }
  return !lines->empty();
}

std::vector<Running> LocalLauncher::reserved(const std::vector<Entry>& entries) const {
  std::vector<Running> running;
  for (const auto& [id, attempt] : attempts_) {
    const auto entry =
        std::find_if(entries.begin(), entries.end(), [id = id](const Entry& one) { return one.id == id; });
    Running run{id, attempt.started, entry == entries.end() ? 0 : entry->seconds, attempt.need, {}};
    for (size_t i = 0; i < local_.machine.cards.size(); ++i)
      if (std::find(attempt.cards.begin(), attempt.cards.end(), local_.machine.cards[i].name) !=
          attempt.cards.end())
        run.cards.push_back(static_cast<int>(i));
    running.push_back(std::move(run));
  }
  return running;
}

// The machine without what others take on the host, and without what its other queues have promised.
Machine LocalLauncher::machine_now() {
  Machine machine = local_.machine;
  // Asked before what is free: what is taken in between counts twice, never not at all.
  const PromisedByOthers others = ledger_.promised_by_others();
  if (others.host_bytes > 0) foreign_looked_at_ = 0;
  if (const double now = clock_now(); now > foreign_looked_at_ + 1 || now < foreign_looked_at_) {
    foreign_looked_at_ = now;
    int64_t taken = 0;
    std::optional<Children> children;
    for (const auto& [id, attempt] : attempts_) taken += memory_of(processes_of(attempt, children)).now;
    host_limit_ = local_.free_host_bytes() + taken;
  }
  machine.host_bytes = std::min(machine.host_bytes, host_limit_ - others.host_bytes);
  promised_by_ = others.host_bytes_of;
  if (local_.cards) return local_.cards->with_room(std::move(machine), runs_on_cards(), others);
  return machine;
}

// Others may take other amounts by now.
bool LocalLauncher::is_due() const { return foreign_looked_at_ + 2 < clock_now(); }

void LocalLauncher::start(std::vector<Entry>& entries) {
  const bool cards_may_come = local_.cards && local_.cards->more_may_come();
  std::vector<Waiting> waiting;
  for (Entry& entry : entries)
    if (entry.state == State::waiting && !is_put_off(entry.id) &&
        is_ready(store_, local_.machine, entry, cards_may_come))
      waiting.push_back({entry.id, entry.priority, entry.seconds, entry.submitted, entry.promised, entry.need,
                         open_plans(local_.machine, entry)});
  if (waiting.empty()) return;
  const auto alone = ledger_.lock(lock_missed_at_ == 0 ? 2000 : 0);
  if (alone) lock_missed_at_ = lock_given_up_at_ = 0;
  if (!alone && !starts_without_lock(entries, waiting)) return;
  const double now = clock_now();
  const Machine machine = machine_now();
  see_to_what_others_block(entries, machine, waiting);
  const ChosenPlans chosen = choose_plans(machine, std::move(waiting), reserved(entries), now);
  const Packing packing = pack(machine, chosen.waiting, reserved(entries), now);
  for (const Placement& placement : packing.starts)
    for (Entry& entry : entries)
      if (entry.id == placement.id) start_one(entry, placement.cards, taken_plan(entry, placement, chosen));
  if (!packing.starts.empty()) promise_what_runs();
  if (packing.promise) keep_promise(entries, *packing.promise, machine);
}

// The user whose queues have promised the most of the host, where any have.
std::string LocalLauncher::promised_words() const {
  const auto most = std::max_element(promised_by_.begin(), promised_by_.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == promised_by_.end() || most->second == 0) return "";
  return formatted(": {} has promised {} to runs of other queues", user_words(most->first),
                   format_bytes(most->second));
}

// A process that holds the lock of all queues for a minute holds up the others no longer.
bool LocalLauncher::starts_without_lock(std::vector<Entry>& entries, const std::vector<Waiting>& waiting) {
  constexpr double kPatience = 60;
  const double now = steady_now();
  if (lock_missed_at_ == 0) {
    lock_missed_at_ = now;
    const std::string words = ledger_.lock_words();
    options_.report("nothing starts for now: " + words);
    for (Entry& entry : entries)
      if (std::any_of(waiting.begin(), waiting.end(), [&](const Waiting& one) { return one.id == entry.id; }))
        entry = store_.change(entry.id, [&](Entry& found) {
          if (found.state == State::waiting) found.note = "waits: " + words;
          return found.state == State::waiting;
        });
  }
  if (now < lock_missed_at_ + kPatience) return false;
  if (lock_given_up_at_ == 0)
    options_.report(formatted(
        "starts go on without the lock of the machine's queues, which others may hold as well: {} for a "
        "minute",
        ledger_.lock_words()));
  lock_given_up_at_ = now;
  return true;
}

// Handles entries that could run if it were not for others on the machine, or for cards that do not answer.
void LocalLauncher::see_to_what_others_block(std::vector<Entry>& entries, const Machine& machine,
                                             std::vector<Waiting>& waiting) {
  for (Entry& entry : entries) {
    const auto found =
        std::find_if(waiting.begin(), waiting.end(), [&](const Waiting& one) { return one.id == entry.id; });
    if (found == waiting.end() || entry.state != State::waiting) continue;
    if (never_fits_at_all(machine, entry, open_plans(local_.machine, entry)).empty()) {
      blocked_since_.erase(entry.id);
      continue;
    }
    blocked_since_.try_emplace(entry.id, steady_now());
    if (see_to_blocked(entry, machine))
      found->need = entry.need;
    else
      waiting.erase(found);
  }
}

bool LocalLauncher::see_to_blocked(Entry& entry, const Machine& machine) {
  const FitNextToOthers beside = fit_next_to_others(machine, entry.need, tried_by(store_, entry));
  const double waited = steady_now() - blocked_since_.at(entry.id);
  const auto change = [&](const auto& apply) {
    entry = store_.change(entry.id, [&](Entry& found) {
      if (found.state != State::waiting) return false;
      apply(found);
      return true;
    });
    return entry.state == State::waiting;
  };
  if (beside.fit == Fit::less) {
    blocked_since_.erase(entry.id);
    return change([&](Entry& found) {
      found.need = beside.need;
      found.note = "reserves what others leave of its memory, not what it was raised to";
    });
  }
  if (beside.fit == Fit::too_little &&
      waited >= std::min(kRaisedPatienceSeconds, options_.patience_seconds)) {
    blocked_since_.erase(entry.id);
    entry = store_.finish(entry.id, entry.attempts, settle_beside_others);
    options_.report(formatted("{}: {}, {}", title(entry), name_of(entry.state), entry.note));
    return entry.state == State::waiting;
  }
  const std::string why = what_others_block(entry, machine);
  if (options_.until_done && waited >= options_.patience_seconds) return hold_blocked(entry, why), false;
  const std::string note = "waits: " + why;
  return note == entry.note || change([&](Entry& found) { found.note = note; });
}

// In words behind "waits:".
std::string LocalLauncher::what_others_block(const Entry& entry, const Machine& machine) const {
  Need need = entry.need;
  for (const SmallerPlan& plan : open_plans(local_.machine, entry)) {
    need.host_bytes = std::min(need.host_bytes, plan.host_bytes);
    if (plan.device_bytes > 0) need.device_bytes = std::min(need.device_bytes, plan.device_bytes);
  }
  if (need.host_bytes > machine.host_bytes)
    return formatted("the host has no {} beside what others use{}", format_bytes_up(need.host_bytes),
                     promised_words());
  const std::string of_devices = need.devices == 1 ? "no device" : formatted("no {} devices", need.devices);
  return formatted("{} with {} beside what others use{}", of_devices, format_bytes_up(need.device_bytes),
                   silent_cards(machine));
}

// A worker that is to end waits for others only so long.
void LocalLauncher::hold_blocked(Entry& entry, const std::string& why) {
  blocked_since_.erase(entry.id);
  entry = store_.change(entry.id, [&](Entry& found) {
    if (found.state != State::waiting) return false;
    found.state = State::held;
    found.note = formatted("held after {}: {}; plimsoll queue resume {} lets it wait again",
                           format_seconds(options_.patience_seconds), why, found.id);
    return true;
  });
  options_.report(formatted("{}: {}, {}", title(entry), name_of(entry.state), entry.note));
}

// Promises for other queues of this machine, those of runs that were there before this worker included.
void LocalLauncher::promise_what_runs() const {
  std::vector<PromisedRun> runs;
  for (const auto& [id, attempt] : attempts_) {
    pid_t supervisor = 0;
    for (const auto& [pid, child] : children_)
      if (child.entry == id) supervisor = pid;
    if (supervisor == 0) supervisor = look_at(store_.folder_of(id, attempt.number)).supervisor;
    if (supervisor > 0)
      runs.push_back({supervisor, attempt.need.host_bytes, attempt.need.device_bytes, attempt.cards});
  }
  ledger_.promise(runs);
}

void LocalLauncher::keep_promise(std::vector<Entry>& entries, const Promise& promise,
                                 const Machine& machine) {
  for (Entry& entry : entries)
    if (entry.id == promise.id && !entry.promised)
      entry = store_.change(entry.id, [&](Entry& found) {
        if (found.state != State::waiting) return false;
        if (promise.time < 1e15) found.promised = promise.time;
        found.note = what_is_short(machine, found.need, reserved(entries));
        return true;
      });
}

void LocalLauncher::start_one(Entry& entry, const std::vector<int>& cards,
                              const std::optional<TakenPlan>& taken) {
  std::vector<std::string> names;
  for (const int card : cards) names.push_back(local_.machine.cards[static_cast<size_t>(card)].name);
  const bool begun = store_.begin(entry.id, names, clock_now(), [&](Entry& found) {
    // Slurm may have had it over several nodes, with a budget for each.
    if (!taken && found.need.processes > 1) bind_to_plan(found.words, found.need);
    if (!taken) return;
    keep_own_plan(found, taken->plan);
    found.need = with_plan(found.need, taken->plan);
    found.seconds = taken->plan.seconds;
    bind_to_plan(found.words, found.need);
    found.note = taken->why;
  });
  entry = store_.entry(entry.id);
  if (!begun) return;
  attempts_[entry.id] = store_.attempt(entry.id, entry.attempts).value_or(Attempt{});
  launch_attempt(entry, attempts_.at(entry.id));
  options_.report(formatted("{}: running{}{}{}", title(entry),
                            names.empty() ? "" : " on " + join(names, ", "),
                            entry.attempts > 1 ? ", attempt " + std::to_string(entry.attempts) : "",
                            taken ? ", " + taken->why : ""));
}

void LocalLauncher::launch_attempt(const Entry& entry, const Attempt& attempt) {
  Launch job = launch_of(store_, entry, attempt, options_.program, options_.grace_seconds);
  // In front, so that values of --env win.
  if (!local_.machine.cards.empty())
    job.environment.insert(job.environment.begin(), "CUDA_VISIBLE_DEVICES=" + join(attempt.cards, ","));
  const pid_t pid = launch(job);
  launched_[entry.id] = attempt.number;
  ends_.erase(entry.id);
  children_[pid] = {static_cast<int>(syscall(SYS_pidfd_open, pid, 0)), entry.id};
}

}  // namespace plimsoll::queue
