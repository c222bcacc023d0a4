// The text of a running line, fitted to a terminal's width.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runs/observer.h"

namespace plimsoll {

// A line's bytes in the caller's buffer, and the columns that they take on a terminal.
struct FittedLine {
  size_t bytes = 0;
  int columns = 0;
};

enum class ProgressBar : uint8_t { none, fitting };

// "train ███░░ 512/938 loss 1.2041 ..." in at most `width` columns. Parts that do not fit are left out: the
// bar, then fields, the least important first. `width` 0: all fields, no bar. Needs 512 bytes. Allocates
// nothing.
FittedLine progress_line(const StepProgress& state, int width, std::span<char> out,
                         ProgressBar bar = ProgressBar::fitting);

// "load    weights ███░░ 1.20 of 2.88 GiB".
FittedLine loading_line(int64_t done, int64_t total, int width, std::span<char> out);
FittedLine rows_line(const char* what, int64_t done, int64_t total, int width, std::span<char> out);

}  // namespace plimsoll
