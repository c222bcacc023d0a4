#include "fleet/queue/packing/choose_plans.h"

#include <algorithm>
#include <optional>

namespace plimsoll::queue {
namespace {

constexpr size_t kMostConsidered =
    24;                         // of those that wait, the first in rank: later ones get their turn later
constexpr int kMostBeside = 8;  // runs at once that the first guesses are made for
// Factors on the time until all is done. The gain of fewer threads is predicted less well than that of less
// memory.
constexpr double kWorthIt = 0.99, kFewerThreadsWorthIt = 0.95;

SmallerPlan own_plan(const Waiting& entry) {
  return {entry.need.host_bytes, entry.seconds, entry.need.threads};
}

Waiting planned(Waiting entry, const SmallerPlan& plan) {
  entry.need = with_plan(entry.need, plan);
  entry.seconds = plan.seconds;
  return entry;
}

// All plans that fit the machine at all, the run's own first.
std::vector<SmallerPlan> plans_of(const Machine& machine, const Waiting& entry) {
  std::vector<SmallerPlan> plans = {own_plan(entry)};
  plans.insert(plans.end(), entry.smaller.begin(), entry.smaller.end());
  std::erase_if(plans, [&](const SmallerPlan& plan) {
    return !never_fits(machine, with_plan(entry.need, plan)).empty();
  });
  if (plans.empty()) plans.push_back(own_plan(entry));
  return plans;
}

// Returns true if any plan of any of them would fit next to what runs.
bool any_could_start(const Machine& machine, const std::vector<Waiting>& waiting,
                     const std::vector<Running>& running) {
  return std::any_of(waiting.begin(), waiting.end(), [&](const Waiting& entry) {
    const auto fits = [&](const SmallerPlan& plan) {
      return what_is_short(machine, with_plan(entry.need, plan), running).empty();
    };
    return fits(own_plan(entry)) || std::any_of(entry.smaller.begin(), entry.smaller.end(), fits);
  });
}

// Plans of the run are for several numbers of devices.
bool has_counts(const Waiting& entry) {
  return entry.need.processes > 1 || std::ranges::any_of(entry.smaller, [&](const SmallerPlan& plan) {
           return plan.processes > 0 && plan.processes != entry.need.processes;
         });
}

// A run on cards with the plans that it may have, for each kind and number of cards its first plan that fits
// the machine at all. Runs that share a card share what it computes, so a smaller plan that lets one more run
// join it gains nothing. Other numbers of the same cards are a choice, since fewer cards leave others to others.
Waiting with_plans_of_cards(const Machine& machine, Waiting entry) {
  const bool counts = has_counts(entry);
  std::vector<SmallerPlan> chosen;
  const auto consider = [&](const Need& need, double seconds) {
    const SmallerPlan plan{need.host_bytes,   seconds,   need.threads,
                           need.device_bytes, need.card, counts ? need.processes : 0};
    const auto same = [&](const SmallerPlan& one) {
      return one.card == plan.card && one.processes == plan.processes;
    };
    if (std::any_of(chosen.begin(), chosen.end(), same)) return;
    if (never_fits(machine, need).empty()) chosen.push_back(plan);
  };
  consider(entry.need, entry.seconds);
  for (const SmallerPlan& plan : entry.smaller) consider(with_plan(entry.need, plan), plan.seconds);
  entry.smaller.clear();
  if (chosen.empty()) return entry;
  entry = planned(std::move(entry), chosen.front());
  for (size_t i = 1; i < chosen.size(); ++i)
    (chosen[i].card == entry.need.card ? entry.smaller : entry.elsewhere).push_back(chosen[i]);
  return entry;
}

// A choice for each run: the place of its plan in plans_of().
class Chooser {
 public:
  Chooser(const Machine& machine, const std::vector<Waiting>& waiting, const std::vector<Running>& running,
          double now)
      : machine_(machine), waiting_(waiting), running_(running), now_(now), choice_(waiting.size(), 0) {
    for (const Waiting& entry : waiting) plans_.push_back(plans_of(machine, entry));
    own_end_ = end_ = end_of(choice_);
  }

  void improve() {
    for (int beside = 2; beside <= kMostBeside; ++beside) try_choice(share_of(beside));
    for (size_t i = 0; i < choice_.size(); ++i)
      for (size_t plan = 0; plan < plans_[i].size(); ++plan) try_choice(changed(i, plan));
    // No run is made slower without a gain.
    for (size_t i = 0; i < choice_.size(); ++i)
      for (size_t plan = 0; plan < choice_[i]; ++plan)
        if (const auto larger = changed(i, plan); end_of(larger) <= end_) choice_ = larger;
    if (end_ - now_ > (has_fewer_threads() ? kFewerThreadsWorthIt : kWorthIt) * (own_end_ - now_)) {
      std::fill(choice_.begin(), choice_.end(), 0);
      end_ = own_end_;
    }
  }

  [[nodiscard]] std::vector<Waiting> chosen() const { return with(choice_); }
  [[nodiscard]] double own_end() const { return own_end_; }
  [[nodiscard]] double end() const { return end_; }

 private:
  using Choice = std::vector<size_t>;

  [[nodiscard]] std::vector<Waiting> with(const Choice& choice) const {
    std::vector<Waiting> waiting;
    for (size_t i = 0; i < waiting_.size(); ++i)
      waiting.push_back(planned(waiting_[i], plans_[i][choice[i]]));
    return waiting;
  }
  [[nodiscard]] double end_of(const Choice& choice) const {
    return predicted_end(machine_, with(choice), running_, now_);
  }
  // Each run the fastest plan with which as many fit side by side, or the smallest that it has.
  [[nodiscard]] Choice share_of(int beside) const {
    const int cards = std::max(1, static_cast<int>(machine_.cards.size()) / beside);
    Choice choice;
    for (size_t run = 0; run < plans_.size(); ++run) {
      const std::vector<SmallerPlan>& plans = plans_[run];
      const auto fits = std::find_if(plans.begin(), plans.end(), [&](const SmallerPlan& plan) {
        return plan.host_bytes <= machine_.host_bytes / beside &&
               (plan.threads <= 1 || plan.threads <= machine_.threads / beside) &&
               with_plan(waiting_[run].need, plan).devices <= cards;
      });
      choice.push_back(std::min(static_cast<size_t>(fits - plans.begin()), plans.size() - 1));
    }
    return choice;
  }
  [[nodiscard]] bool has_fewer_threads() const {
    const std::vector<Waiting> chosen = with(choice_);
    for (size_t i = 0; i < chosen.size(); ++i)
      if (chosen[i].need.threads < waiting_[i].need.threads) return true;
    return false;
  }
  [[nodiscard]] Choice changed(size_t run, size_t plan) const {
    Choice choice = choice_;
    choice[run] = plan;
    return choice;
  }
  void try_choice(const Choice& choice) {
    if (const double end = end_of(choice); end < end_) {
      end_ = end;
      choice_ = choice;
    }
  }

  const Machine& machine_;
  const std::vector<Waiting>& waiting_;
  const std::vector<Running>& running_;
  double now_;
  std::vector<std::vector<SmallerPlan>> plans_;
  Choice choice_;
  double own_end_ = 0, end_ = 0;
};

}  // namespace

namespace {

// Runs that share what its cards compute, of a plan for cards, on the card that most are on.
int runs_beside(const Placement& placement, const std::vector<Running>& running) {
  if (placement.need.card.empty()) return 0;
  std::ptrdiff_t most = 0;
  for (const int card : placement.cards)
    most = std::max(most, std::ranges::count_if(running, [&](const Running& run) {
                      return std::ranges::find(run.cards, card) != run.cards.end();
                    }));
  return static_cast<int>(most);
}

}  // namespace

double predicted_end(const Machine& machine, std::vector<Waiting> waiting, std::vector<Running> running,
                     double now) {
  double end = now;
  // Once, for a run that is late would be expected later at every look.
  for (Running& run : running) run.seconds = expected_end(run, now) - run.started;
  for (double clock = now;;) {
    const Packing packing = pack(machine, waiting, running, clock);
    for (const Placement& placement : packing.starts) {
      const auto found = std::find_if(waiting.begin(), waiting.end(),
                                      [&](const Waiting& entry) { return entry.id == placement.id; });
      const double alone = placement.seconds > 0 ? placement.seconds : kUnknownSeconds;
      const double seconds = alone * (1 + runs_beside(placement, running));
      running.push_back({found->id, clock, seconds, placement.need, placement.cards});
      waiting.erase(found);
    }
    for (Waiting& entry : waiting)
      if (packing.promise && entry.id == packing.promise->id && !entry.promised)
        entry.promised = packing.promise->time;
    if (running.empty()) return end;
    double next = running.front().started + running.front().seconds;
    for (const Running& run : running) {
      end = std::max(end, run.started + run.seconds);
      next = std::min(next, run.started + run.seconds);
    }
    if (waiting.empty()) return end;
    clock = std::max(clock, next);
    std::erase_if(running, [&](const Running& run) { return run.started + run.seconds <= clock; });
  }
}

ChosenPlans choose_plans(const Machine& machine, std::vector<Waiting> waiting,
                         const std::vector<Running>& running, double now) {
  for (Waiting& entry : waiting)
    if (entry.need.devices > 0 && !entry.smaller.empty())
      entry = with_plans_of_cards(machine, std::move(entry));
  const bool none_open =
      std::all_of(waiting.begin(), waiting.end(), [](const Waiting& one) { return one.smaller.empty(); });
  // A full machine is looked at every other second, and nothing that cannot start needs a plan yet.
  if (none_open || !any_could_start(machine, waiting, running)) return {std::move(waiting), 0, 0};
  sort_by_rank(waiting, now);
  std::vector<Waiting> later;
  if (waiting.size() > kMostConsidered) {
    later.assign(waiting.begin() + kMostConsidered, waiting.end());
    waiting.resize(kMostConsidered);
  }
  Chooser chooser(machine, waiting, running, now);
  chooser.improve();
  ChosenPlans chosen{chooser.chosen(), chooser.own_end() - now, chooser.end() - now};
  chosen.waiting.insert(chosen.waiting.end(), later.begin(), later.end());
  return chosen;
}

}  // namespace plimsoll::queue
