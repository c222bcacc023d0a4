#include "ranks/mpi_group.h"

#include <sys/resource.h>

#include <array>
#include <charconv>
#include <filesystem>

#include "base/environment.h"
#include "base/format.h"
#include "base/shared_library.h"
#include "base/units.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPluginFile = "libplimsoll_mpi.so";
constexpr const char* kInstall = "install Open MPI (Debian, Ubuntu: sudo apt install openmpi-bin)";

// Launchers, by what they leave in the environment.
constexpr const char* kMpirun = "mpirun";
constexpr const char* kPmiSize = "PMI_SIZE";
constexpr const char* kSlurmTasks = "SLURM_STEP_NUM_TASKS";

int number_in(const char* variable) {
  const std::string text = environment(variable);
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

fs::path find_plugin() {
  if (const std::string named = environment("PLIMSOLL_MPI"); !named.empty()) return named;
  std::error_code unknown;
  const fs::path folder = fs::read_symlink("/proc/self/exe", unknown).parent_path();
  for (const fs::path& file : {folder / kPluginFile, folder / "../lib/plimsoll" / kPluginFile})
    if (fs::exists(file, unknown)) return file;
  throw UsageError(
      formatted("devices: several processes need MPI, and this program was built without it: {} is not "
                "in its folder. With the sources: {} and libopenmpi-dev, then build again",
                kPluginFile, kInstall));
}

// Each MPI finds the other processes by a protocol of its launcher; without it Open MPI ends the process by itself, with
// code 1, and MPICH takes it for the only one.
void require_protocol(const StartedBy& started, const PlimsollMpi& mpi) {
  if (started.launcher == kMpirun || number_in(kSlurmTasks) <= 1 || !environment("PMIX_RANK").empty()) return;
  const bool open_mpi = is_open_mpi(mpi);
  if (!open_mpi && number_in(kPmiSize) > 0) return;
  throw UsageError(formatted(
      "devices: {} started {} processes without {}, by which {} finds the others: start them with srun --mpi={} "
      "(srun --mpi=list names what this Slurm has)",
      started.launcher, started.ranks, open_mpi ? "PMIx" : "PMI", library_of(mpi),
      open_mpi ? "pmix" : "pmi2"));
}

void require(int failed, const char* call) {
  if (failed != 0) throw StoppedError(formatted("MPI: {} fails (error {})", call, failed));
}

}  // namespace

const PlimsollMpi* open_mpi_plugin() {
  const fs::path file = find_plugin();
  std::string why;
  void* const library = open_library(file.string(), why);
  if (library == nullptr)
    throw UsageError(formatted("devices: several processes need MPI: {}. {}", why, kInstall));
  const auto* mpi = static_cast<const PlimsollMpi*>(dlsym(library, "plimsoll_mpi"));
  if (mpi == nullptr || mpi->version != PLIMSOLL_MPI_VERSION)
    throw UsageError(
        formatted("devices: {} is of another version of plimsoll; build it with this one", file.string()));
  return mpi;
}

std::string library_of(const PlimsollMpi& mpi) {
  std::array<char, 128> name{};
  if (mpi.library(name.data(), static_cast<int>(name.size())) != 0) return "an unknown MPI";
  const std::string text =
      name.data();  // "Open MPI v4.1.4, package: ...", "MPICH Version:\t4.0.2\nMPICH Release ..."
  std::string first = text.substr(0, text.find_first_of(",\n"));
  for (char& c : first)
    if (c == '\t') c = ' ';
  return first;
}

bool is_open_mpi(const PlimsollMpi& mpi) { return library_of(mpi).starts_with("Open MPI"); }

void require_shared_files(const PlimsollMpi& mpi) {
  constexpr rlim_t kEach = 8 * kMiB;  // 4 MiB of a process, and the tables of PMIx
  rlimit limit{};
  if (!is_open_mpi(mpi) || getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= kEach) return;
  throw UsageError(formatted(
      "devices: the processes of {} share files of several MiB, and a limit (ulimit -f) ends files at {}: raise it to {} "
      "or more (ulimit -f unlimited)",
      library_of(mpi), format_bytes(static_cast<int64_t>(limit.rlim_cur)), format_bytes(kEach)));
}

StartedBy who_started_me() {
  if (const int ranks = number_in("OMPI_COMM_WORLD_SIZE"); ranks > 0) return {ranks, kMpirun};
  if (const int ranks = number_in(kPmiSize); ranks > 0) return {ranks, "mpiexec (PMI)"};
  // A batch script of Slurm has SLURM_NTASKS too; the tasks of a step are started by srun.
  if (const int ranks = number_in(kSlurmTasks); ranks > 1) return {ranks, "srun"};
  return {};
}

MpiGroup::MpiGroup(const StartedBy& started) : mpi_(open_mpi_plugin()) {
  require_protocol(started, *mpi_);
  require_shared_files(*mpi_);
  require(mpi_->init(&rank_, &size_), "MPI_Init_thread");
  const std::string library = library_of(*mpi_);
  if (size_ != started.ranks)
    throw UsageError(formatted(
        "devices: {} started {} processes, and {} knows of {}: each would train by itself. Use the mpirun of "
        "that MPI, with Slurm srun --mpi=pmix",
        started.launcher, started.ranks, library, size_));
  watch_ = std::make_unique<Watch>(*this);
}

MpiGroup::~MpiGroup() {
  if (!ends_together_) return;
  mpi_->finish();
  watch_->wait_for_leader();
}

void MpiGroup::ends_together() {
  barrier();
  watch_->ends();
  ends_together_ = true;
}

template <class Call>
void MpiGroup::call(const char* name, Call&& call) {
  if (watch_) watch_->enters();
  const int failed = call();
  if (watch_) watch_->leaves();
  require(failed, name);
}

void MpiGroup::all_gather(std::span<std::byte> bytes) {
  call("MPI_Allgather", [&] {
    return mpi_->all_gather(bytes.data(), static_cast<int>(bytes.size() / static_cast<size_t>(size_)));
  });
}

void MpiGroup::exchange(std::span<const std::byte> from, std::span<std::byte> to) {
  call("MPI_Alltoall", [&] {
    return mpi_->exchange(from.data(), to.data(), static_cast<int>(to.size() / static_cast<size_t>(size_)));
  });
}

void MpiGroup::barrier() {
  call("MPI_Barrier", [&] { return mpi_->barrier(); });
}

}  // namespace plimsoll
