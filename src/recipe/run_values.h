// Values of a recipe's keys that a run goes by: where it starts, its device, when it saves, evaluates and stops.
#pragma once

#include <cstdint>
#include <optional>

namespace plimsoll {

enum class Init : uint8_t { weights, random };
enum class DeviceChoice : uint8_t { automatic, cpu, card, cuda, emulated };

// save.keep: all.
inline constexpr int64_t kKeepAll = 0;

// The times at which something happens: after so many steps (0: at the end only), at each end of an epoch, or
// after a share of all steps.
struct Every {
  enum class Unit : uint8_t { steps, epochs, percent };
  Unit unit = Unit::steps;
  int64_t steps = 0;
  double percent = 0.0;
  [[nodiscard]] bool is_requested() const { return unit != Unit::steps || steps > 0; }
  // Returns true if it is due behind step number `step`, which ends an epoch or does not.
  [[nodiscard]] bool is_due(int64_t step, int64_t total_steps, bool ends_epoch) const;
  friend bool operator==(const Every&, const Every&) = default;
};

// The condition on which a run stops because its loss is lost (train/loss_guard.h).
struct StopLoss {
  enum class Kind : uint8_t { automatic, never, limit };
  Kind kind = Kind::automatic;
  double limit = 0;  // of the mean loss, with Kind::limit
  friend bool operator==(const StopLoss&, const StopLoss&) = default;
};

// The keys of `stop`.
struct StopLimits {
  StopLoss loss;
  std::optional<double> above;  // the loss of a step
  int64_t above_steps = 3;      // how many of them in a row
  int64_t patience = 0;         // evaluations that are no better; 0: any number
  int64_t silence = 0;          // seconds that another process may say nothing; 0: auto
  friend bool operator==(const StopLimits&, const StopLimits&) = default;
};

}  // namespace plimsoll
