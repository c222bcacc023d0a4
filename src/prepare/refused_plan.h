// A refusal as an exception, and as text that another process reads.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "base/error.h"
#include "plan/search/refusal.h"
#include "prepare/setup.h"

namespace plimsoll {

// A run is refused, as its plan does not fit.
struct RefusedPlan : DoesNotFitError {
  RefusedPlan(Refusal why, std::optional<ReleasedPlan> released);

  Refusal refusal;
  std::optional<ReleasedPlan> released;
  std::shared_ptr<const DataSetup> data = {};  // that the run opened, so that advice opens none of it again
};

nlohmann::json written(const Variant& variant);
Variant read_variant(const nlohmann::json& object);
nlohmann::json written(const RefusedPlan& refused);
RefusedPlan read_refused_plan(const nlohmann::json& object);

}  // namespace plimsoll
