// What the doctor is given: logs, snapshots, run folders.
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

// The logs right in a folder, told apart by their names, and where the folder is a run's what its own logs
// tell. Throws UsageError where there is neither.
doctor::Evidence read_doctor_folder(const std::string& folder);

}  // namespace plimsoll
