// Describes the order of a run's rows and its cost, for the plan.
#pragma once

#include "prepare/setup.h"
#include "recipe/recipe.h"

namespace plimsoll {

// Writes into data.summary how the training rows are shuffled and how they are reached; a row store
// (data/rows/row_store.h) is measured exactly where every row is `counted`.
void describe_order(const Recipe& recipe, bool counted, DataSetup& data);

// A note for a run that continues in the order of an earlier version, where that is another one for these
// rows; "" for others.
std::string begun_order_note(const Recipe& requested, const Recipe& begun, const DataSetup& data);

// Returns true if the order visits rows in parts, so that a kind of rows may come late (runs/seen_targets.h).
bool visits_in_parts(const DataSource& train);

}  // namespace plimsoll
