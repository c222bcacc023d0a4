// A memory snapshot of PyTorch.
#include "fleet/doctor/snapshot.h"
#include "fuzz/target.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plimsoll::accepted([&] {
    const auto snapshot = plimsoll::doctor::read_snapshot(plimsoll::text_of(data, size), "snapshot.pickle");
    const auto diagnosis = plimsoll::doctor::diagnose(snapshot);
    plimsoll::doctor::snapshot_text(snapshot, diagnosis);
    plimsoll::doctor::snapshot_json(snapshot, diagnosis);
  });
  return 0;
}
