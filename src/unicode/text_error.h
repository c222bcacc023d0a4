#pragma once

#include <cstddef>
#include <string>

#include "base/error.h"

namespace plimsoll {

// A text that the tokenizer cannot turn into ids, though it is sound itself: for rows it is the row's damage.
struct TextError : UsageError {
  using UsageError::UsageError;
};

[[noreturn]] inline void refuse_growth(size_t bytes) {
  throw TextError("the tokenizer makes far more of a text of " + std::to_string(bytes) +
                  " bytes than any known one does");
}

}  // namespace plimsoll
