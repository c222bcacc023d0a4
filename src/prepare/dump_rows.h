// Prints the first rows as the model gets them: `plan --dump rows`.
#pragma once

#include <string>

#include "prepare/setup.h"

namespace plimsoll {

// A line of JSON for each of at most `count` training rows, in the order of the files: where it stands, its
// token ids, its labels (-100: not trained), and how many tokens it had before it was cut.
std::string dump_rows(DataSource& source, int64_t count);

}  // namespace plimsoll
