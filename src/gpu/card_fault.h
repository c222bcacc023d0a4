// Errors of a GPU that last: until the process ends the GPU does nothing more.
#pragma once

#include <string>

#include "base/error.h"
#include "base/format.h"

namespace plimsoll::gpu {

// Thrown by the next call and all later ones, so the message says what to do to learn which op it was.
class CardFault : public StoppedError {
 public:
  explicit CardFault(const std::string& cause)
      : StoppedError(formatted("the GPU failed: {}; {}", cause, kHowToLearn)), cause_(cause) {}
  // Noticed when `op` was launched; `alone`: all before it was done, so it is the one that failed.
  CardFault(const std::string& cause, const std::string& op, bool alone)
      : StoppedError(alone ? formatted("the GPU failed in {}: {}", op, cause)
                           : formatted("the GPU failed: {}, noticed at {}; {}", cause, op, kHowToLearn)),
        cause_(cause) {}
  [[nodiscard]] const std::string& cause() const { return cause_; }

 private:
  static constexpr const char* kHowToLearn =
      "an earlier op failed, or the GPU itself: run again with PLIMSOLL_CARD_WAITS=1 in the environment, which waits for each op and names the one that fails";
  std::string cause_;
};

// Says by an error's number in CUDA that it lasts: memory of the card that cannot be corrected (214), an
// illegal address (700), a launch that took too long (702), an assertion (710), traps, stacks, instructions
// and addresses of kernels (714 to 719), what is unknown (999).
constexpr bool lasts(int error) {
  constexpr int kUncorrectable = 214, kIllegalAddress = 700, kTimeout = 702, kAssert = 710,
                kFirstOfKernels = 714, kLastOfKernels = 719, kUnknown = 999;
  return error == kUncorrectable || error == kIllegalAddress || error == kTimeout || error == kAssert ||
         (error >= kFirstOfKernels && error <= kLastOfKernels) || error == kUnknown;
}

}  // namespace plimsoll::gpu
