// The table of a plug-in for MPI, in plain C: the program links no MPI, and opens libplimsoll_mpi.so where
// it is asked for several processes. Another MPI is served by building mpi_plugin.cc with its mpicxx.
#pragma once

extern "C" {

// Raised with every change of the table below.
#define PLIMSOLL_MPI_VERSION 2

// All of these return 0, or MPI's error.
struct PlimsollMpi {
  int version;
  int (*library)(char* name, int bytes);  // its name and version; also before init
  int (*init)(int* rank, int* ranks);
  int (*all_gather)(void* bytes, int each);  // in place
  int (*exchange)(const void* from, void* to, int each);
  int (*barrier)(void);
  int (*finish)(void);
};
}
