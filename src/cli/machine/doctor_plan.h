// Plans alternatives to a run from its recipe: the doctor's next steps, with their bytes.
#pragma once

#include "cli/commands.h"
#include "fleet/doctor/diagnosis.h"

namespace plimsoll {

// Replaces the steps that shrink the run by planned ones. A recipe of another tool is read as `plan` reads
// it; rows are not needed. Throws UsageError where it cannot be planned.
void plan_steps(const RecipeArguments& arguments, doctor::Diagnosis& diagnosis);

}  // namespace plimsoll
