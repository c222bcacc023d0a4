#include "fleet/queue/packing/simulation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "fleet/queue/packing/choose_plans.h"
#include "fleet/queue/packing/ladder.h"

namespace plimsoll::queue {
namespace {

constexpr double kPollSeconds = 30;     // of a script that asks what is free
constexpr double kObserveSeconds = 10;  // between two looks of the queue at what runs take
constexpr size_t kAttempts = 20;        // of the scripts, each the same again; of the queue, of each step
constexpr double kLongest = 400.0 * 24 * 3600;

struct SimulatedAttempt {
  size_t job = 0;
  double started = 0;
  Need need;
  std::vector<int> cards;
  double slower = 1;                         // than with the job's own plan, by what was predicted
  double smaller = 1;                        // share of its peak
  bool tried = false;                        // one that crashed keeps the plan that it has
  size_t step = 0;                           // of Job::steps that it has taken
  std::optional<double> blocked_since = {};  // others leave it no room
};

struct SimulatedTry {
  Need need;
  size_t step = 0;
};

// The clock moves in seconds: everything that a run does is a straight line between two of them.
class Simulation {
 public:
  Simulation(const Workload& workload, Policy policy)
      : workload_(workload),
        policy_(policy),
        offered_(workload.machine),
        pools_(workload.machine.cards.size() + 1),
        tries_of_(workload.jobs.size()) {
    outcome_.policy = policy;
    if (policy == Policy::packed) offered_ = less_headroom(workload);
    for (size_t i = 0; i < workload.jobs.size(); ++i) coming_.push_back(i);
    std::stable_sort(coming_.begin(), coming_.end(),
                     [&](size_t a, size_t b) { return workload.jobs[a].arrives < workload.jobs[b].arrives; });
  }

  Outcome run() {
    while (!waiting_.empty() || !running_.empty() || next_ < coming_.size()) {
      if (now_ > kLongest) throw UsageError("the workload takes more than 400 days of its clock");
      left_ = beside_others(workload_, workload_.machine, now_);
      bool changed = arrive();
      changed |= end_runs();
      changed |= crash_runs();
      if (changed || std::fmod(now_, policy_ == Policy::polled ? kPollSeconds : kObserveSeconds) == 0)
        start();
      if (policy_ == Policy::polled && waits_in_vain()) lose_what_waits();
      outcome_.most_at_once = std::max(outcome_.most_at_once, static_cast<int>(running_.size()));
      now_ += 1;
    }
    finish();
    return outcome_;
  }

 private:
  static int64_t scaled(int64_t bytes, double factor) {
    return static_cast<int64_t>(static_cast<double>(bytes) * factor);
  }

  bool arrive() {
    const size_t before = next_;
    for (; next_ < coming_.size() && job(coming_[next_]).arrives <= now_; ++next_)
      waiting_.push_back(first_attempt(coming_[next_]));
    return next_ != before;
  }

  SimulatedAttempt first_attempt(size_t index) const {
    SimulatedAttempt attempt;
    attempt.job = index;
    attempt.need = job(index).need;
    if (policy_ != Policy::packed) return attempt;
    int64_t& bytes = attempt.need.devices == 0 ? attempt.need.host_bytes : attempt.need.device_bytes;
    bytes = scaled(bytes, 1 + workload_.margin);
    // A margin alone makes nothing impossible: such a run has the whole device.
    if (!never_fits(offered_, attempt.need).empty()) bytes = job_bytes(job(index).need);
    return attempt;
  }

  bool end_runs() {
    const size_t before = running_.size();
    std::erase_if(running_, [&](const SimulatedAttempt& run) {
      if (now_ < run.started + run.slower * seconds_of(run)) return false;
      outcome_.makespan = now_;
      waited_ += run.started - job(run.job).arrives;
      ++ended_;
      return true;
    });
    return running_.size() != before;
  }

  int64_t used_by(const SimulatedAttempt& run) const {
    const Job& which = job(run.job);
    const double age = now_ - run.started;
    const double share = which.ramp_seconds > 0 ? std::min(1.0, age / which.ramp_seconds) : 1;
    return scaled(peak_of(run), share * run.smaller) +
           static_cast<int64_t>(which.leak_bytes_per_second * age);
  }

  // The memory of every card, and of the host behind them.
  std::vector<int64_t> used() const {
    std::vector<int64_t> bytes(pools_, 0);
    for (const SimulatedAttempt& run : running_) {
      if (run.cards.empty()) bytes.back() += used_by(run);
      for (const int card : run.cards) bytes[static_cast<size_t>(card)] += used_by(run);
    }
    return bytes;
  }
  // The memory that others leave now.
  int64_t whole(size_t pool) const { return pool + 1 == pools_ ? left_.host_bytes : left_.cards[pool].bytes; }
  int64_t peak_of(const SimulatedAttempt& run) const {
    return run.step == 0 ? job(run.job).peak_bytes : job(run.job).steps[run.step - 1].peak_bytes;
  }
  double seconds_of(const SimulatedAttempt& run) const {
    return run.step == 0 ? job(run.job).seconds : job(run.job).steps[run.step - 1].seconds;
  }

  // A script waits for ever if others have what its next job needs by its estimate, and never go.
  bool waits_in_vain() const {
    if (!running_.empty() || next_ < coming_.size() || waiting_.empty()) return false;
    if (std::fmod(now_, kPollSeconds) != 0) return false;
    for (const std::vector<OthersUse>& pool : workload_.others)
      for (const OthersUse& one : pool)
        if (one.from > now_ || one.until > now_) return false;
    return true;
  }
  void lose_what_waits() {
    outcome_.lost_jobs += static_cast<int>(waiting_.size());
    waiting_.clear();
  }
  bool is_on(const SimulatedAttempt& run, size_t pool) const {
    if (pool + 1 == pools_) return run.cards.empty();
    return std::find(run.cards.begin(), run.cards.end(), static_cast<int>(pool)) != run.cards.end();
  }

  // On a full device the allocation of a run that still grows fails: of the youngest of those.
  bool crash_runs() {
    bool any = false;
    std::vector<int64_t> bytes = used();
    for (size_t pool = 0; pool < pools_; ++pool) {
      if (pool + 1 < pools_) in_use_ += static_cast<double>(std::min(bytes[pool], whole(pool)));
      while (bytes[pool] > whole(pool)) {
        crash(victim(pool));
        bytes = used();
        any = true;
      }
    }
    return any;
  }

  size_t victim(size_t pool) const {
    size_t chosen = running_.size();
    bool chosen_grows = false;
    for (size_t i = 0; i < running_.size(); ++i) {
      if (!is_on(running_[i], pool)) continue;
      const Job& which = job(running_[i].job);
      const bool grows = now_ - running_[i].started <= which.ramp_seconds || which.leak_bytes_per_second > 0;
      if (chosen == running_.size() || grows >= chosen_grows) chosen = i, chosen_grows = grows;
    }
    return chosen;
  }

  void crash(size_t index) {
    SimulatedAttempt run = running_[index];
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
    ++outcome_.crashes;
    crashed_.insert(run.job);
    tries_of_[run.job].push_back({run.need, run.step});
    if (tries_of_[run.job].size() >= kAttempts * (1 + run.step)) return take_step_or_lose(run);
    if (policy_ == Policy::packed) {
      const auto next =
          need_after_memory_ran_out(beside_others(workload_, offered_, now_), run.need, used_by(run));
      if (!next) return take_step_or_lose(run);
      run.need = *next;
      run.tried = true;
    }
    run.cards.clear();
    waiting_.push_back(run);
  }
  void take_step_or_lose(SimulatedAttempt run) {
    if (policy_ != Policy::packed || !take_step(run)) return lose();
    waiting_.push_back(run);
  }
  // The user's next smaller variant.
  bool take_step(SimulatedAttempt& run) {
    if (run.step >= job(run.job).steps.size()) return false;
    ++run.step;
    ++outcome_.steps_taken;
    run.tried = true;
    run.slower = run.smaller = 1;
    run.cards.clear();
    run.blocked_since.reset();
    return true;
  }
  void lose() { ++outcome_.lost_jobs; }

  void start() {
    if (policy_ == Policy::packed) return start_packed();
    if (policy_ == Policy::polled && std::fmod(now_, kPollSeconds) != 0) return;
    std::vector<int64_t> bytes = used();
    for (size_t i = 0; i < waiting_.size();) {
      const auto cards =
          policy_ == Policy::polled ? free_cards(waiting_[i], bytes) : empty_cards(waiting_[i]);
      if (!cards) break;  // in order
      for (const int card : *cards) bytes[static_cast<size_t>(card)] += waiting_[i].need.device_bytes;
      if (cards->empty()) bytes.back() += waiting_[i].need.host_bytes;
      launch(i, *cards);
    }
  }

  // The emptiest devices with as much free memory now as the job needs by its estimate.
  std::optional<std::vector<int>> free_cards(const SimulatedAttempt& wanted,
                                             const std::vector<int64_t>& bytes) const {
    if (wanted.need.devices == 0) {
      if (whole(pools_ - 1) - bytes.back() < wanted.need.host_bytes) return std::nullopt;
      return std::vector<int>{};
    }
    std::vector<int> cards;
    for (size_t i = 0; i + 1 < pools_; ++i)
      if (whole(i) - bytes[i] >= wanted.need.device_bytes) cards.push_back(static_cast<int>(i));
    std::stable_sort(cards.begin(), cards.end(), [&](int a, int b) {
      const auto left = static_cast<size_t>(a), right = static_cast<size_t>(b);
      return whole(left) - bytes[left] > whole(right) - bytes[right];
    });
    return first_of(cards, wanted);
  }

  std::optional<std::vector<int>> empty_cards(const SimulatedAttempt& wanted) const {
    if (wanted.need.devices == 0) {
      if (std::any_of(running_.begin(), running_.end(),
                      [](const SimulatedAttempt& run) { return run.cards.empty(); }))
        return std::nullopt;
      return std::vector<int>{};
    }
    std::vector<int> cards;
    for (size_t i = 0; i + 1 < pools_; ++i)
      if (std::none_of(running_.begin(), running_.end(),
                       [&](const SimulatedAttempt& run) { return is_on(run, i); }))
        cards.push_back(static_cast<int>(i));
    return first_of(cards, wanted);
  }

  static std::optional<std::vector<int>> first_of(std::vector<int> cards, const SimulatedAttempt& wanted) {
    if (cards.size() < static_cast<size_t>(wanted.need.devices)) return std::nullopt;
    cards.resize(static_cast<size_t>(wanted.need.devices));
    return cards;
  }

  void launch(size_t index, std::vector<int> cards) {
    SimulatedAttempt run = waiting_[index];
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(index));
    run.started = now_;
    run.cards = std::move(cards);
    running_.push_back(std::move(run));
  }

  // As Worker::see_to_what_others_block does.
  void see_to_what_others_block(const Machine& machine) {
    std::erase_if(waiting_, [&](SimulatedAttempt& one) {
      std::string never = never_fits(machine, one.need);
      for (const SmallerPlan& plan : one.tried ? std::vector<SmallerPlan>{} : with_margin(job(one.job)))
        if (!never.empty()) never = never_fits(machine, with_plan(one.need, plan));
      if (never.empty()) return one.blocked_since.reset(), false;
      if (!one.blocked_since) one.blocked_since = now_;
      return is_given_up(one, machine);
    });
  }
  bool is_given_up(SimulatedAttempt& one, const Machine& machine) {
    std::vector<Tried> tried;
    for (const SimulatedTry& before : tries_of_[one.job])
      tried.push_back({before.need, before.step == one.step});
    const FitNextToOthers beside = fit_next_to_others(machine, one.need, tried);
    const double waited = now_ - *one.blocked_since;
    outcome_.longest_blocked = std::max(outcome_.longest_blocked, waited);
    one.need = beside.need;
    if (beside.fit == Fit::less) return one.blocked_since.reset(), false;
    if (beside.fit == Fit::too_little &&
        waited >= std::min(kRaisedPatienceSeconds, workload_.patience_seconds)) {
      if (take_step(one)) return false;
      return lose(), true;
    }
    if (waited < workload_.patience_seconds) return false;
    ++outcome_.held_jobs;
    return lose(), true;
  }

  // The queue itself: what a run was seen to take above its reservation counts as reserved.
  void start_packed() {
    const Machine machine = beside_others(workload_, offered_, now_);
    see_to_what_others_block(machine);
    std::vector<Waiting> waiting;
    for (const SimulatedAttempt& one : waiting_) {
      const Job& which = job(one.job);
      const auto id = static_cast<int64_t>(one.job);
      const auto promised = promises_.find(id);
      waiting.push_back({id, which.priority, one.slower * which.predicted_seconds, which.arrives,
                         promised == promises_.end() ? std::nullopt : std::optional(promised->second),
                         one.need, one.tried ? std::vector<SmallerPlan>{} : with_margin(which)});
    }
    std::vector<Running> running;
    for (const SimulatedAttempt& run : running_) {
      Need need = run.need;
      int64_t& bytes = run.cards.empty() ? need.host_bytes : need.device_bytes;
      bytes = std::max(bytes, used_by(run));
      running.push_back({static_cast<int64_t>(run.job), run.started,
                         run.slower * job(run.job).predicted_seconds, need, run.cards});
    }
    const ChosenPlans chosen = choose_plans(machine, std::move(waiting), running, now_);
    const Packing packing = pack(machine, chosen.waiting, running, now_);
    if (packing.promise) promises_.emplace(packing.promise->id, packing.promise->time);
    for (const Placement& placement : packing.starts) {
      const auto found = std::find_if(waiting_.begin(), waiting_.end(), [&](const SimulatedAttempt& one) {
        return static_cast<int64_t>(one.job) == placement.id;
      });
      take_plan(*found, placement);
      launch(static_cast<size_t>(found - waiting_.begin()), placement.cards);
    }
    note_reserved();
  }

  std::vector<SmallerPlan> with_margin(const Job& which) const {
    std::vector<SmallerPlan> plans = which.smaller;
    for (SmallerPlan& one : plans) {
      int64_t& bytes = which.need.devices == 0 ? one.host_bytes : one.device_bytes;
      bytes = scaled(bytes, 1 + workload_.margin);
    }
    return plans;
  }

  void take_plan(SimulatedAttempt& attempt, const Placement& placement) const {
    const Job& which = job(attempt.job);
    if (attempt.tried || placement.need == attempt.need || which.predicted_seconds <= 0) return;
    attempt.slower = placement.seconds / which.predicted_seconds;
    attempt.smaller = static_cast<double>(job_bytes(placement.need)) /
                      static_cast<double>(std::max<int64_t>(1, job_bytes(attempt.need)));
    attempt.need = placement.need;
  }

  void note_reserved() {
    for (size_t pool = 0; pool < pools_; ++pool) {
      int64_t sum = 0;
      for (const SimulatedAttempt& run : running_)
        if (is_on(run, pool)) sum += job_bytes(run.need);
      outcome_.most_reserved = std::max(outcome_.most_reserved, sum);
    }
  }

  void finish() {
    outcome_.crashed_jobs = static_cast<int>(crashed_.size());
    outcome_.done_jobs = ended_;
    outcome_.mean_wait = ended_ > 0 ? waited_ / ended_ : 0;
    double bytes = 0;
    for (const MachineCard& card : workload_.machine.cards) bytes += static_cast<double>(card.bytes);
    if (bytes > 0 && outcome_.makespan > 0) outcome_.used_share = in_use_ / bytes / outcome_.makespan;
  }

  static int64_t job_bytes(const Need& need) {
    return need.devices == 0 ? need.host_bytes : need.device_bytes;
  }
  const Job& job(size_t index) const { return workload_.jobs[index]; }

  const Workload& workload_;
  Policy policy_;
  Machine offered_;
  Machine left_;  // by others, of the whole
  size_t pools_;  // the cards, and last the host
  std::vector<size_t> coming_;
  size_t next_ = 0;
  std::vector<SimulatedAttempt> waiting_, running_;
  std::vector<std::vector<SimulatedTry>> tries_of_;
  std::map<int64_t, double> promises_;
  std::set<size_t> crashed_;
  double now_ = 0, waited_ = 0, in_use_ = 0;
  int ended_ = 0;
  Outcome outcome_;
};

}  // namespace

std::string_view name_of(Policy policy) {
  switch (policy) {
    case Policy::packed:
      return "this queue";
    case Policy::polled:
      return "free-memory polling";
    case Policy::one_a_card:
      return "one job per device";
  }
  return "";
}

Outcome simulate(const Workload& workload, Policy policy) { return Simulation(workload, policy).run(); }

}  // namespace plimsoll::queue
