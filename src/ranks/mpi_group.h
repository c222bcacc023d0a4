// Ranks that mpirun or srun has started: processes, whose bytes MPI moves.
#pragma once

#include <memory>
#include <string>

#include "ranks/group.h"
#include "ranks/mpi_plugin.h"
#include "ranks/watch.h"

namespace plimsoll {

// The launcher that started this process next to others, by what it left in the environment.
struct StartedBy {
  int ranks = 1;
  std::string launcher;  // "mpirun"; empty: none did
};
StartedBy who_started_me();

class MpiGroup final : public Group {
 public:
  // Opens the plug-in and the MPI that it was built for, once in a process. Throws UsageError where there is
  // none, naming what to install, and where that MPI knows of fewer processes than were started.
  explicit MpiGroup(const StartedBy& started);
  // Ends with all ranks where ends_together() was called, else at once: the process is expected to end.
  ~MpiGroup() override;
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  void all_gather(std::span<std::byte> bytes) override;
  void exchange(std::span<const std::byte> from, std::span<std::byte> to) override;
  void barrier() override;

  [[nodiscard]] Watch& watch() { return *watch_; }
  // All ranks come to their end, in good order.
  void ends_together();

 private:
  template <class Call>
  void call(const char* name, Call&& call);

  const PlimsollMpi* mpi_ = nullptr;
  int rank_ = 0, size_ = 1;
  std::unique_ptr<Watch> watch_;
  bool ends_together_ = false;
};

// The plug-in's file in the program's folder, or the one that PLIMSOLL_MPI names; throws UsageError, with what to
// install, where it is not there or cannot be opened.
const PlimsollMpi* open_mpi_plugin();
// The name and version of the MPI that it was built for, as that says them in its first line.
std::string library_of(const PlimsollMpi& mpi);
bool is_open_mpi(const PlimsollMpi& mpi);
// Throws UsageError where this process's limit on the size of files is below what Open MPI's processes share: it starts them, and
// they wait for each other without an end.
void require_shared_files(const PlimsollMpi& mpi);

}  // namespace plimsoll
