// Reads the doctor's inputs: logs, snapshots, run folders.
#pragma once

#include <string>

#include "fleet/doctor/diagnosis.h"

namespace plimsoll {

// A log, or a memory snapshot of PyTorch; "-" is standard input.
struct DoctorInput {
  doctor::Evidence evidence;
  std::string snapshot;  // the bytes of a pickle; else empty
};
// Draws how much was read on a terminal, of large files. Throws UsageError for what cannot be read.
DoctorInput read_doctor_input(const std::string& path);

// Reads the logs right in a folder, identified by their names, and in the folder of a run its own logs.
// Throws UsageError where there is neither.
doctor::Evidence read_doctor_folder(const std::string& folder);

}  // namespace plimsoll
