// Reads PyTorch's memory snapshots (torch.cuda.memory._dump_snapshot): what a device held at their time and
// at its peak.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/doctor/diagnosis.h"

namespace plimsoll::doctor {

// Allocations from one place of a program.
struct AllocationSite {
  std::string place;  // "train.py:31:forward"; empty: the snapshot has no frames for it
  int64_t bytes = 0, count = 0;
};

struct DeviceSnapshot {
  int64_t device = 0;
  int64_t segments = 0, blocks = 0;
  int64_t reserved = 0;      // in segments
  int64_t allocated = 0;     // in blocks that are in use, or wait to be freed
  int64_t requested = 0;     // of that, what programs asked for: the rest is rounding
  int64_t idle = 0;          // reserved, and in no use
  int64_t largest_idle = 0;  // block of it
  int64_t trace_entries = 0;
  int64_t peak = 0;  // of `allocated` over the trace, which ends at the snapshot; at least `allocated`
  bool saw_out_of_memory = false;
  int64_t tried = 0, free_then = 0;             // of the last failure in the trace
  std::vector<AllocationSite> at_end, at_peak;  // largest first
};

struct Snapshot {
  std::string settings;  // of the allocator, as the snapshot has them
  std::vector<DeviceSnapshot> devices;
};

// The first bytes of a pickle of protocol 2 or later.
bool looks_like_pickle(std::string_view start);

// Throws UsageError naming `name` for a file that is no such snapshot.
Snapshot read_snapshot(std::string_view bytes, const std::string& name);

// Diagnoses the device that ran out of memory, else the fullest one.
Diagnosis diagnose(const Snapshot& snapshot);
std::string snapshot_text(const Snapshot& snapshot, const Diagnosis& diagnosis, size_t columns = 100);
std::string snapshot_json(const Snapshot& snapshot, const Diagnosis& diagnosis);

}  // namespace plimsoll::doctor
