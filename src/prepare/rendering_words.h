// Describes in words how the rows of a run become text.
#pragma once

#include <string>
#include <vector>

#include "data/rows/columns.h"
#include "prepare/setup.h"

namespace plimsoll {

// Lines about the chat template: which one renders the rows; why they stand as they are where the model has
// one; what a named one writes that the tokenizer has no token for. Empty where there is nothing to say.
std::vector<std::string> rendering_words(const Resolved& resolved, const ColumnBinding& binding,
                                         const DataSetup& data);

}  // namespace plimsoll
