#include "runtime/program_graphs.h"

#include <algorithm>
#include <utility>

namespace plimsoll {
namespace {

// Micro-steps of a step may differ, and come again in the next one.
constexpr size_t kRemembered = 4;

}  // namespace

ProgramGraphs::ProgramGraphs(Device& device, std::vector<HostFact> facts, int most)
    : device_(device), facts_(std::move(facts)), most_(static_cast<size_t>(most)), now_(facts_.size()) {
  kept_.reserve(most_);
  seen_.reserve(kRemembered);
}

void ProgramGraphs::run(const std::function<void()>& calls) {
  look();
  auto found = std::ranges::find_if(kept_, [&](const Captured& captured) { return captured.facts == now_; });
  if (found == kept_.end() && kept_.size() < most_ && seen_lately()) {
    device_.begin_capture();
    calls();
    kept_.push_back({now_, device_.end_capture()});
    found = kept_.end() - 1;
  }
  if (found != kept_.end()) return device_.launch(*found->graph);
  remember();
  calls();
}

void ProgramGraphs::look() {
  for (size_t i = 0; i < facts_.size(); ++i) now_[i] = facts_[i]();
}

bool ProgramGraphs::seen_lately() const { return std::ranges::find(seen_, now_) != seen_.end(); }

void ProgramGraphs::remember() {
  if (kept_.size() == most_ || seen_lately()) return;
  if (seen_.size() < kRemembered) {
    seen_.push_back(now_);
  } else {
    seen_[next_seen_++ % kRemembered] = now_;
  }
}

}  // namespace plimsoll
