// Starts the processes of a run on this machine, by mpirun.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace plimsoll {

// Runs the program with these arguments in so many processes, and returns when all have ended, with their one
// exit code. SIGINT, SIGTERM and SIGHUP stop them after a save, SIGUSR1 has them save; a second of the former
// ends them at once. Throws UsageError where MPI or its mpirun is not there.
ExitCode launch_ranks(int64_t ranks, const std::vector<std::string>& arguments);

// The MPI of the plug-in, and the program that starts its processes.
struct MpiHere {
  std::string library, launcher;
  std::string problem;  // empty: several processes can be started
};
MpiHere mpi_here();

// The program's file in PATH; empty: it is not there.
std::string find_in_path(const std::string& program);

// The arguments of this process.
std::vector<std::string> own_arguments();

}  // namespace plimsoll
