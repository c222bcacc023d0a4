#include "train/fitting_plan.h"

#include "base/error.h"
#include "base/system_memory.h"
#include "base/units.h"

namespace plimsoll {

void require_fit(const Plan& plan) {
  if (!plan.fits()) throw DoesNotFitError(refusal_text(plan));
  const int64_t free = plan.request.budget.free_bytes;
  if (plan.process_peak_bytes() > free) {
    throw DoesNotFitError("does not fit   device and host need " + format_bytes(plan.process_peak_bytes()) +
                          " together, " + format_bytes(free) + " are free on this machine; short by " +
                          format_bytes(plan.process_peak_bytes() - free) +
                          "\n  memory.device: auto takes the largest variant that fits what is free");
  }
  const auto limit = data_limit();
  if (limit && plan.data_bytes() > *limit) {
    throw DoesNotFitError("does not fit   the process needs " + format_bytes(plan.data_bytes()) +
                          " of private data, RLIMIT_DATA allows " + format_bytes(*limit) +
                          " (ulimit -d); short by " + format_bytes(plan.data_bytes() - *limit));
  }
}

}  // namespace plimsoll
