// libplimsoll_mpi.so: the calls of MPI that the program makes.
#include "ranks/mpi_plugin.h"

#include <mpi.h>

#include <cstring>

namespace {

int library(char* name, int bytes) {
  int length = 0;
  char whole[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  const int failed = MPI_Get_library_version(whole, &length);
  std::strncpy(name, whole, static_cast<size_t>(bytes) - 1);
  name[bytes - 1] = 0;
  return failed;
}

int init(int* rank, int* ranks) {
  int level = 0;
  if (const int failed = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level)) return failed;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (const int failed = MPI_Comm_rank(MPI_COMM_WORLD, rank)) return failed;
  return MPI_Comm_size(MPI_COMM_WORLD, ranks);
}

int all_gather(void* bytes, int each) {
  return MPI_Allgather(MPI_IN_PLACE, 0, MPI_BYTE, bytes, each, MPI_BYTE, MPI_COMM_WORLD);
}

int exchange(const void* from, void* to, int each) {
  return MPI_Alltoall(from, each, MPI_BYTE, to, each, MPI_BYTE, MPI_COMM_WORLD);
}

int barrier() { return MPI_Barrier(MPI_COMM_WORLD); }

int finish() { return MPI_Finalize(); }

}  // namespace

extern "C" const PlimsollMpi plimsoll_mpi;
const PlimsollMpi plimsoll_mpi = {PLIMSOLL_MPI_VERSION, library, init, all_gather, exchange, barrier, finish};
