// Measures a GPU's memory during a run: when the device is open, when its arena is there, when programs are
// bound, and at the end.
#pragma once

#include <optional>

#include "device/catalogue.h"
#include "runs/run_record.h"
#include "runtime/device.h"

namespace plimsoll {

class CardUse {
 public:
  // `resident_before`: of the process, before the device was opened.
  CardUse(const Device& device, int64_t resident_before);
  // `exchange`: what exchanging with other ranks takes of it already.
  void mapped(const Device& device, int64_t exchange);
  // Programs are bound, their code is loaded.
  void bound(const Device& device);
  // None where the device has no memory of its own.
  [[nodiscard]] std::optional<CardBytes> now(const Device& device) const;
  // The measurements of a run on device: cuda.
  [[nodiscard]] static MeasuredCard measured(const CardBytes& bytes);

 private:
  std::optional<gpu::MemoryLeft> open_, mapped_, bound_;
  int64_t on_host_ = 0, exchange_ = 0;
};

}  // namespace plimsoll
