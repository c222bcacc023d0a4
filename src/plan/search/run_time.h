// Puts into words how long a run takes with its rows as they are.
#pragma once

#include <optional>
#include <string>

#include "plan/program/experiment.h"
#include "plan/program/time_model.h"
#include "plan/search/plan.h"

namespace plimsoll {

// "3 h 20 min", "2 days 4 h", "42 s", "213 days": two units at most, as people say it.
std::string duration_words(double seconds);
// "1.4"
std::string tenths(double value);
// "1,560 tokens/s", "4.3 tokens/s"; where they are slow "12.8 s a token".
std::string speed_words(double tokens_per_second);
// "938 steps in about 3 h 20 min (3 epochs of 5,000 rows)"; of a run without rows or stated steps, a
// thousand.
std::string run_words(const Plan& plan);

}  // namespace plimsoll
