// Decides whether a run's rows share their prefixes (docs/decisions/17-shared-prefixes.md).
#pragma once

#include <string>

#include "plan/search/plan.h"
#include "recipe/recipe.h"

namespace plimsoll {

// The reason why rows cannot, as words behind `data.share_prefixes: on, but`; empty: they can.
std::string why_no_shared_prefixes(const Recipe& recipe, const Experiment& experiment);

// As the recipe says; by itself where it pays, as far as the rows are known, and changes nothing that is
// drawn. Throws UsageError for what cannot be.
bool shares_prefixes(const Recipe& recipe, const Experiment& experiment, const DataSummary* rows);

}  // namespace plimsoll
