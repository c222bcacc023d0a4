#include "fleet/queue/local_launcher.h"

#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/printable.h"
#include "base/strings.h"
#include "base/units.h"
#include "fleet/queue/packing/planned.h"
#include "fleet/queue/processes/process_tree.h"
#include "fleet/queue/store/machine_record.h"

namespace plimsoll::queue {
namespace {

constexpr int kTickMilliseconds = 200;

// In words, the plan with which a run on cards begins instead of its own.
std::string plan_for_cards(const Entry& entry, const Need& need) {
  const std::string bytes = format_bytes(need.device_bytes) + " on the card";
  const bool own = std::none_of(entry.smaller.begin(), entry.smaller.end(), [&](const SmallerPlan& plan) {
    return plan.card == need.card && plan.device_bytes > need.device_bytes;
  });
  if (need.card != entry.need.card && own) return "its plan for the " + need.card + ", " + bytes;
  return "a smaller plan, " + bytes + ": the largest that there is room for";
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
  TakenPlan taken{{need.host_bytes, placement.seconds, need.threads, need.device_bytes, need.card}, ""};
  if (need.devices > 0) {
    taken.why = plan_for_cards(entry, need);
    return taken;
  }
  taken.why =
      "a smaller plan, " + format_bytes(taken.plan.host_bytes) + " of " + format_bytes(entry.need.host_bytes);
  if (taken.plan.threads < entry.need.threads)
    taken.why +=
        ", threads " + std::to_string(taken.plan.threads) + " of " + std::to_string(entry.need.threads);
  if (const double slower = entry.seconds > 0 ? placement.seconds / entry.seconds - 1 : 0; slower > 0.005)
    taken.why += ", " + std::to_string(std::lround(100 * slower)) + " % slower";
  taken.why += chosen.seconds < chosen.seconds_before ? ": all is done in " + format_seconds(chosen.seconds) +
                                                            ", not " + format_seconds(chosen.seconds_before)
                                                      : ": the largest that there is room for";
  return taken;
}

// A run that begins with a plan for other cards may need its own again where those are gone.
void keep_for_other_cards(Entry& entry, const SmallerPlan& taken) {
  const Need& own = entry.need;
  if (taken.card == own.card || own.card.empty()) return;
  entry.smaller.insert(entry.smaller.begin(),
                       {own.host_bytes, entry.seconds, own.threads, own.device_bytes, own.card});
}

}  // namespace

Worker::Worker(Store& store, WorkerOptions options)
    : store_(store),
      options_(std::move(options)),
      ledger_(options_.machine_folder, store.folder()),
      lock_(store.folder()) {
  if (!ledger_.warning().empty()) options_.report(ledger_.warning());
  record_machine(store.folder(), options_.machine);
  take_up(store, options_.grace_seconds);
  if (store.draining()) store.drain(false);  // that was for the worker before this one
}

Worker::~Worker() {
  for (const auto& [pid, child] : children_) close(child.file);
}

size_t Worker::running() const { return attempts_.size(); }

bool Worker::all_done() const {
  return attempts_.empty() && std::none_of(entries_.begin(), entries_.end(),
                                           [](const Entry& one) { return one.state != State::held; });
}

void Worker::run(const std::function<bool()>& stop_asked) {
  Patience patience(options_.report);
  for (bool over = false; !over && !stop_asked();) {
    store_.require_in_place();
    if (!patience.done([&] { over = look(); })) version_ = -1;  // what is on disk counts
    if (!over) sleep();
  }
}

bool Worker::look() {
  if (const int64_t version = store_.version(); version != version_) {
    version_ = version;
    reload();
  }
  end_what_does_not_hear();
  changed_ |= settle_ended();
  look_at_cards();
  const bool again = foreign_asked_ + 2 < clock_now();  // what others take may have changed
  if ((changed_ || again) && !draining_ && !store_.paused()) start_what_fits();
  changed_ = false;
  if (!draining_ || !attempts_.empty()) return options_.until_done && all_done();
  store_.drain(false);
  return true;
}

void Worker::sleep() {
  std::vector<pollfd> ready;
  for (const auto& [pid, child] : children_) ready.push_back({child.file, POLLIN, 0});
  poll(ready.data(), ready.size(), kTickMilliseconds);
  std::erase_if(children_, [](const auto& child) {
    if (waitpid(child.first, nullptr, WNOHANG) == 0) return false;
    close(child.second.file);
    return true;
  });
}

void Worker::reload() {
  entries_ = store_.open_entries();
  let_go_what_may_follow(store_, entries_);
  hold_cycles(store_, entries_);
  draining_ = store_.draining();
  changed_ = true;
  attempts_.clear();
  // An entry that another scheduler has is followed by the worker that handed it over.
  std::erase_if(entries_, [&](const Entry& entry) {
    if (!is_begun(entry.state)) return false;
    const auto last = store_.attempt(entry.id, entry.attempts);
    return !last || !last->job.empty();
  });
  for (const Entry& entry : entries_) {
    if (entry.state != State::running) continue;
    attempts_[entry.id] = store_.attempt(entry.id, entry.attempts).value_or(Attempt{});
    if (options_.cards) options_.cards->name_whole(attempts_[entry.id].cards);
    pass_on_requests(entry);
  }
  take_in_damaged();
}

// An entry whose row is damaged is held or canceled, and its run may continue: its room is taken until it
// ends.
void Worker::take_in_damaged() {
  damaged_.clear();
  for (const Attempt& attempt : store_.open_attempts()) {
    const bool runs = attempt.job.empty() && !attempts_.contains(attempt.entry) &&
                      look_at(store_.folder_of(attempt.entry, attempt.number)).life == Life::alive;
    if (runs && attempts_.emplace(attempt.entry, attempt).second) damaged_.insert(attempt.entry);
  }
}

bool Worker::let_go_damaged() {
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

void Worker::pass_on_requests(const Entry& entry) const {
  if (entry.stop_asked) ask_to_end(store_.folder_of(entry.id, entry.attempts));
}

// A supervisor that was stopped does not hear it.
void Worker::end_what_does_not_hear() {
  const double now = steady_now();
  for (const Entry& entry : entries_) {
    if (entry.state != State::running || !entry.stop_asked) {
      stop_asked_at_.erase(entry.id);
      continue;
    }
    const double asked = stop_asked_at_.try_emplace(entry.id, now).first->second;
    wake_or_end_supervisor(store_.folder_of(entry.id, entry.attempts), now - asked, options_.grace_seconds);
  }
}

bool Worker::settle_ended() {
  bool any = let_go_damaged();
  std::string stuck;
  for (Entry& entry : entries_) {
    if (entry.state != State::running) continue;
    const AttemptState state = look_at(store_.folder_of(entry.id, entry.attempts));
    if (state.life == Life::alive) continue;
    if (state.life == Life::never_started) {
      const bool coming = std::any_of(children_.begin(), children_.end(),
                                      [&](const auto& child) { return child.second.entry == entry.id; });
      if (coming) continue;
      const Attempt& attempt = attempts_.at(entry.id);
      if (const auto before = launched_.find(entry.id);
          before != launched_.end() && before->second == attempt.number)
        stuck = title(entry) + ": cannot begin in " + store_.folder_of(entry.id, attempt.number).string();
      launch_attempt(entry, attempt);
      continue;
    }
    any |= settle_one(entry, state);
  }
  std::erase_if(entries_, [](const Entry& entry) { return is_over(entry.state); });
  if (!stuck.empty())
    throw StoppedError(printable(stuck) + ": is its disk full, or may the user start no more processes?");
  return any;
}

bool Worker::settle_one(Entry& entry, const AttemptState& state) {
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
  if (verdict->no_room_now.empty() || entry.state != State::waiting) {
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
    hold_blocked(entry, verdict->no_room_now);
  }
  return true;
}

// After memory ran out a run is given no more on a GPU than others leave there: it would wait for what never
// comes. On the host others often take much for a moment: see_to_what_others_block waits for that.
Machine Worker::machine_of_ladder() {
  if (!options_.cards) return options_.machine;
  Machine machine =
      options_.cards->with_room(options_.machine, runs_on_cards(), ledger_.promised_by_others());
  for (Card& card : machine.cards)
    if (!card.problem.empty()) card = {};  // it takes nothing new
  return machine;
}

bool Worker::is_put_off(int64_t id) const {
  const auto later = later_.find(id);
  return later != later_.end() && clock_now() < later->second.time;
}

std::vector<pid_t> Worker::processes_of(const Attempt& attempt, std::optional<Children>& children) const {
  const AttemptState state = look_at(store_.folder_of(attempt.entry, attempt.number));
  if (state.life != Life::alive) return {};
  if (!children) children = children_of(all_processes());
  return descendants(state.supervisor, *children);
}

std::optional<RunOnCards> Worker::run_on_cards(const Attempt& attempt,
                                               std::optional<Children>& children) const {
  if (attempt.cards.empty()) return std::nullopt;
  return RunOnCards{attempt.cards,
                    {attempt.need.device_bytes,
                     std::make_shared<const std::vector<pid_t>>(processes_of(attempt, children))}};
}

std::vector<RunOnCards> Worker::runs_on_cards() const {
  std::vector<RunOnCards> runs;
  std::optional<Children> children;
  for (const auto& [id, attempt] : attempts_)
    if (auto run = run_on_cards(attempt, children)) runs.push_back(std::move(*run));
  return runs;
}

// Takes the driver's latest report: cards that came, stopped answering, or answer again, and what runs have.
void Worker::look_at_cards() {
  if (!options_.cards) return;
  const auto lines = options_.cards->take(options_.machine);
  if (!lines) return;
  for (const std::string& line : *lines) options_.report(line);
  if (!lines->empty()) record_machine(store_.folder(), options_.machine);
  changed_ |= !lines->empty();
  std::optional<Children> children;
  for (auto& [id, attempt] : attempts_) {
    const auto run = run_on_cards(attempt, children);
    const int64_t most = run ? options_.cards->most_on_a_card(*run).value_or(0) : 0;
    if (most <= attempt.card_peak_bytes) continue;
    attempt.card_peak_bytes = most;
    store_.saw_on_cards(id, attempt.number, most);
  }
}

std::vector<Running> Worker::reserved() {
  std::vector<Running> running;
  for (const auto& [id, attempt] : attempts_) {
    const auto entry =
        std::find_if(entries_.begin(), entries_.end(), [id = id](const Entry& one) { return one.id == id; });
    Running run{id, attempt.started, entry == entries_.end() ? 0 : entry->seconds, attempt.need, {}};
    for (size_t i = 0; i < options_.machine.cards.size(); ++i)
      if (std::find(attempt.cards.begin(), attempt.cards.end(), options_.machine.cards[i].name) !=
          attempt.cards.end())
        run.cards.push_back(static_cast<int>(i));
    running.push_back(std::move(run));
  }
  return running;
}

// The machine without what others take on the host, and without what its other queues have promised.
Machine Worker::machine_now() {
  Machine machine = options_.machine;
  // Asked before what is free: what is taken in between counts twice, never not at all.
  const PromisedByOthers others = ledger_.promised_by_others();
  if (others.host_bytes > 0) foreign_asked_ = 0;
  if (const double now = clock_now(); now > foreign_asked_ + 1 || now < foreign_asked_) {
    foreign_asked_ = now;
    int64_t taken = 0;
    std::optional<Children> children;
    for (const auto& [id, attempt] : attempts_) taken += memory_of(processes_of(attempt, children)).now;
    host_limit_ = options_.free_host_bytes() + taken;
  }
  machine.host_bytes = std::min(machine.host_bytes, host_limit_ - others.host_bytes);
  promised_by_ = others.host_bytes_of;
  if (options_.cards) return options_.cards->with_room(std::move(machine), runs_on_cards(), others);
  return machine;
}

void Worker::start_what_fits() {
  const bool cards_may_come = options_.cards && options_.cards->more_may_come();
  std::vector<Waiting> waiting;
  for (Entry& entry : entries_)
    if (entry.state == State::waiting && !is_put_off(entry.id) &&
        is_ready(store_, options_.machine, entry, cards_may_come))
      waiting.push_back({entry.id, entry.priority, entry.seconds, entry.submitted, entry.promised, entry.need,
                         open_plans(options_.machine, entry)});
  if (waiting.empty()) return;
  const auto alone = ledger_.lock(lock_missed_at_ == 0 ? 2000 : 0);
  if (alone) lock_missed_at_ = lock_given_up_at_ = 0;
  if (!alone && !starts_without_lock(waiting)) return void(changed_ = true);
  const double now = clock_now();
  const Machine machine = machine_now();
  see_to_what_others_block(machine, waiting);
  const ChosenPlans chosen = choose_plans(machine, std::move(waiting), reserved(), now);
  const Packing packing = pack(machine, chosen.waiting, reserved(), now);
  for (const Placement& placement : packing.starts)
    for (Entry& entry : entries_)
      if (entry.id == placement.id) start(entry, placement.cards, taken_plan(entry, placement, chosen));
  if (!packing.starts.empty()) promise_what_runs();
  if (packing.promise) keep_promise(*packing.promise, machine);
}

// The user whose queues have promised the most of the host, where any have.
std::string Worker::promised_words() const {
  const auto most = std::max_element(promised_by_.begin(), promised_by_.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == promised_by_.end() || most->second == 0) return "";
  return ": " + user_words(most->first) + " has promised " + format_bytes(most->second) +
         " to runs of other queues";
}

// A process that holds the lock of all queues for a minute holds up the others no longer.
bool Worker::starts_without_lock(const std::vector<Waiting>& waiting) {
  constexpr double kPatience = 60;
  const double now = steady_now();
  if (lock_missed_at_ == 0) {
    lock_missed_at_ = now;
    const std::string words = ledger_.lock_words();
    options_.report("nothing starts for now: " + words);
    for (Entry& entry : entries_)
      if (std::any_of(waiting.begin(), waiting.end(), [&](const Waiting& one) { return one.id == entry.id; }))
        entry = store_.change(entry.id, [&](Entry& found) {
          if (found.state == State::waiting) found.note = "waits: " + words;
          return found.state == State::waiting;
        });
  }
  if (now < lock_missed_at_ + kPatience) return false;
  if (lock_given_up_at_ == 0)
    options_.report("starts go on without the lock of the machine's queues, which others may hold as well: " +
                    ledger_.lock_words() + " for a minute");
  lock_given_up_at_ = now;
  return true;
}

std::string silent_cards(const Machine& machine) {
  std::string silent;
  for (const Card& card : machine.cards)
    if (!card.problem.empty()) silent += "; " + devices::short_name(card.name) + " " + card.problem;
  return silent;
}

// Handles entries that could run if it were not for others on the machine, or for cards that do not answer.
void Worker::see_to_what_others_block(const Machine& machine, std::vector<Waiting>& waiting) {
  for (Entry& entry : entries_) {
    const auto found =
        std::find_if(waiting.begin(), waiting.end(), [&](const Waiting& one) { return one.id == entry.id; });
    if (found == waiting.end() || entry.state != State::waiting) continue;
    if (never_fits_at_all(machine, entry, open_plans(options_.machine, entry)).empty()) {
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

bool Worker::see_to_blocked(Entry& entry, const Machine& machine) {
  const RoomBesideOthers beside = room_beside_others(machine, entry.need, tried_by(store_, entry));
  const double waited = steady_now() - blocked_since_.at(entry.id);
  const auto change = [&](const auto& apply) {
    entry = store_.change(entry.id, [&](Entry& found) {
      if (found.state != State::waiting) return false;
      apply(found);
      return true;
    });
    return entry.state == State::waiting;
  };
  if (beside.room == Room::less) {
    blocked_since_.erase(entry.id);
    return change([&](Entry& found) {
      found.need = beside.need;
      found.note = "reserves what others leave of its memory, not what it was raised to";
    });
  }
  if (beside.room == Room::too_little &&
      waited >= std::min(kRaisedPatienceSeconds, options_.patience_seconds)) {
    blocked_since_.erase(entry.id);
    entry = store_.finish(entry.id, entry.attempts, settle_beside_others);
    options_.report(title(entry) + ": " + std::string(name_of(entry.state)) + ", " + entry.note);
    return entry.state == State::waiting;
  }
  const std::string why = what_others_block(entry, machine);
  if (options_.until_done && waited >= options_.patience_seconds) return hold_blocked(entry, why), false;
  const std::string note = "waits: " + why;
  return note == entry.note || change([&](Entry& found) { found.note = note; });
}

// In words behind "waits:".
std::string Worker::what_others_block(const Entry& entry, const Machine& machine) const {
  Need need = entry.need;
  for (const SmallerPlan& plan : open_plans(options_.machine, entry)) {
    need.host_bytes = std::min(need.host_bytes, plan.host_bytes);
    if (plan.device_bytes > 0) need.device_bytes = std::min(need.device_bytes, plan.device_bytes);
  }
  if (need.host_bytes > machine.host_bytes)
    return "the host has no " + format_bytes_up(need.host_bytes) + " beside what others use" +
           promised_words();
  const std::string of_devices =
      need.devices == 1 ? "no device" : "no " + std::to_string(need.devices) + " devices";
  return of_devices + " with " + format_bytes_up(need.device_bytes) + " beside what others use" +
         silent_cards(machine);
}

// A worker that is to end waits for others only so long.
void Worker::hold_blocked(Entry& entry, const std::string& why) {
  blocked_since_.erase(entry.id);
  entry = store_.change(entry.id, [&](Entry& found) {
    if (found.state != State::waiting) return false;
    found.state = State::held;
    found.note = "held after " + format_seconds(options_.patience_seconds) + ": " + why +
                 "; plimsoll queue resume " + std::to_string(found.id) + " lets it wait again";
    return true;
  });
  options_.report(title(entry) + ": " + std::string(name_of(entry.state)) + ", " + entry.note);
}

// Promises for other queues of this machine, those of runs that were there before this worker included.
void Worker::promise_what_runs() const {
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

void Worker::keep_promise(const Promise& promise, const Machine& machine) {
  for (Entry& entry : entries_)
    if (entry.id == promise.id && !entry.promised)
      entry = store_.change(entry.id, [&](Entry& found) {
        if (found.state != State::waiting) return false;
        if (promise.time < 1e15) found.promised = promise.time;
        found.note = what_is_short(machine, found.need, reserved());
        return true;
      });
}

void Worker::start(Entry& entry, const std::vector<int>& cards, const std::optional<TakenPlan>& taken) {
  std::vector<std::string> names;
  for (const int card : cards) names.push_back(options_.machine.cards[static_cast<size_t>(card)].name);
  const bool begun = store_.begin(entry.id, names, clock_now(), [&](Entry& found) {
    if (!taken) return;
    keep_for_other_cards(found, taken->plan);
    found.need = with_plan(found.need, taken->plan);
    found.seconds = taken->plan.seconds;
    bind_to_plan(found.words, found.need);
    found.note = taken->why;
  });
  entry = store_.entry(entry.id);
  if (!begun) return;
  attempts_[entry.id] = store_.attempt(entry.id, entry.attempts).value_or(Attempt{});
  launch_attempt(entry, attempts_.at(entry.id));
  options_.report(title(entry) + ": running" + (names.empty() ? "" : " on " + join(names, ", ")) +
                  (entry.attempts > 1 ? ", attempt " + std::to_string(entry.attempts) : "") +
                  (taken ? ", " + taken->why : ""));
}

void Worker::launch_attempt(const Entry& entry, const Attempt& attempt) {
  Launch job = launch_of(store_, entry, attempt, options_.program, options_.grace_seconds);
  // In front, so that values of --env win.
  if (!options_.machine.cards.empty())
    job.environment.insert(job.environment.begin(), "CUDA_VISIBLE_DEVICES=" + join(attempt.cards, ","));
  const pid_t pid = launch(job);
  launched_[entry.id] = attempt.number;
  children_[pid] = {static_cast<int>(syscall(SYS_pidfd_open, pid, 0)), entry.id};
}

}  // namespace plimsoll::queue
