#include "train/loss_guard.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace plimsoll {
namespace {

// Steps whose mean counts as the lowest so far: a run may break down before its window is full.
constexpr int64_t kFewest = 4;

}  // namespace

void LossGuard::add(double loss) {
  if (std::isnan(loss)) return;
  losses_[static_cast<size_t>(count_ % kWindow)] = loss;
  ++count_;
  if (count_ < kFewest) return;
  lowest_mean_ = count_ == kFewest ? mean() : std::min(lowest_mean_, mean());
}

double LossGuard::limit() const {
  switch (stop_.kind) {
    case StopLoss::Kind::never:
      break;
    case StopLoss::Kind::limit:
      return stop_.limit;
    case StopLoss::Kind::automatic:
      if (count_ >= kFewest) return 2.0 * lowest_mean_ + 1.0;
  }
  return std::numeric_limits<double>::infinity();
}

double LossGuard::mean() const {
  const auto held = std::span(losses_).first(static_cast<size_t>(std::min(count_, kWindow)));
  double sum = 0;
  for (const double loss : held) sum += loss;
  return held.empty() ? 0 : sum / static_cast<double>(held.size());
}

void PatienceGuard::add_loss(double loss) {
  if (std::isnan(loss) || !stop_.above) return;
  above_ = loss > *stop_.above ? above_ + 1 : 0;
}

void PatienceGuard::add_evaluation(double cost) {
  const bool lower = !std::isnan(cost) && (!lowest_ || cost < *lowest_);
  if (lower) lowest_ = cost;
  worse_ = lower ? 0 : worse_ + 1;
}

bool LossGuard::rising() const {
  const auto held = std::span(losses_).first(static_cast<size_t>(std::min(count_, kWindow)));
  return std::any_of(held.begin(), held.end(), [&](double loss) { return loss > limit(); });
}

}  // namespace plimsoll
