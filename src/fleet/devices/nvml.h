// Calls NVIDIA's management library (NVML), which is opened where it is installed, without its headers and
// without linking it.
//
// Its calls may hang for good on a card that is in trouble, and nothing ends a call that hangs. So this is
// for a process of its own (watch.h): a card is asked in a thread of its own, which is left behind where it
// hangs.
#pragma once

#include <memory>
#include <string>

#include "fleet/devices/gpu.h"

namespace plimsoll::devices {

// PLIMSOLL_NVML, else "libnvidia-ml.so.1".
std::string nvml_library();

struct NvmlCalls;
struct NvmlAnswers;

class Nvml {
 public:
  // Opens and starts the library; ask() reports failures, none throws.
  explicit Nvml(const std::string& library);
  // Reports all cards. One that takes longer than `seconds` is reported as not answering (kSilent), and not
  // asked again before it has answered.
  [[nodiscard]] GpuReport ask(double seconds);
  // Closes the library, as no more questions come; not where a call still hangs.
  void shut_down();

 private:
  std::shared_ptr<const NvmlCalls> calls_;
  std::shared_ptr<NvmlAnswers> answers_;
  GpuReport start_;  // what is known before any card is asked, or why none can be
};

}  // namespace plimsoll::devices
