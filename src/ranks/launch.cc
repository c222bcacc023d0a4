#include "ranks/launch.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/environment.h"
#include "base/format.h"
#include "ranks/mpi_group.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

volatile std::sig_atomic_t launched = 0;  // mpirun's process
volatile std::sig_atomic_t stop_requested = 0;

// mpirun hands SIGUSR1 and SIGUSR2 on; of others it ends its processes within a second.
void hand_on(int signal) {
  if (launched == 0) return;
  const auto process = static_cast<pid_t>(launched);
  if (signal == SIGUSR1) {
    kill(process, SIGUSR1);
  } else {
    kill(process, stop_requested == 0 ? SIGUSR2 : SIGTERM);
    stop_requested = stop_requested + 1;
  }
}

// If several MPIs are installed, mpirun may be another's.
std::string find_mpirun(bool open_mpi) {
  const auto names = open_mpi ? std::vector{"mpirun.openmpi", "mpirun"}
                              : std::vector{"mpiexec.hydra", "mpiexec.mpich", "mpiexec"};
  for (const char* program : names)
    if (const std::string found = find_in_path(program); !found.empty()) return found;
  throw UsageError(
      open_mpi
          ? "devices: several processes are started by mpirun, which is not in PATH: install Open MPI (Debian, "
            "Ubuntu: sudo apt install openmpi-bin)"
          : "devices: several processes are started by mpiexec.hydra of the MPI that the plug-in was built for, "
            "which is not in PATH");
}

// Returns whether a process may read the memory of one that it did not start, as MPI does where it can.
bool reads_siblings() {
  static int value = 1;
  const pid_t one = fork();
  if (one == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) pause();
  }
  const pid_t other = fork();
  if (other == 0) {
    int read = 0;
    const iovec to = {&read, sizeof read}, from = {&value, sizeof value};
    _exit(process_vm_readv(one, &to, 1, &from, 1, 0) == sizeof read ? 0 : 1);
  }
  int status = 1;
  if (other > 0) waitpid(other, &status, 0);
  if (one > 0) {
    kill(one, SIGKILL);
    waitpid(one, nullptr, 0);
  }
  return status == 0;
}

std::vector<std::string> mpirun_words(bool open_mpi, int64_t ranks,
                                      const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {find_mpirun(open_mpi)};
  if (open_mpi)
    words.insert(words.end(), {"-q", "--oversubscribe", "--bind-to", "none", "--stdin", "none"});
  else
    words.insert(words.end(), {"-bind-to", "none"});
  if (open_mpi && geteuid() == 0) words.emplace_back("--allow-run-as-root");
  words.insert(words.end(), {"-np", std::to_string(ranks)});
  std::error_code failed;
  words.push_back(fs::read_symlink("/proc/self/exe", failed).string());
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

void set_unless_set(const char* variable, const char* value) { setenv(variable, value, 0); }

[[noreturn]] void become(const std::vector<std::string>& words) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  setpgid(0, 0);  // what the terminal sends goes to the launcher alone
  const int nothing = open("/dev/null", O_RDONLY);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execv(argv.front(), argv.data());
  _exit(127);
}

void listen() {
  struct sigaction action {};
  action.sa_handler = hand_on;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) sigaction(signal, &action, nullptr);
  struct sigaction hangup {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
}

// mpirun's own code where a rank said one of ours; a signal ended one, or mpirun itself, otherwise.
ExitCode code_of(int status) {
  if (stop_requested > 1) return ExitCode::interrupted;  // mpirun was told to end: its code says nothing
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  for (const ExitCode known : {ExitCode::ok, ExitCode::internal, ExitCode::usage, ExitCode::does_not_fit,
                               ExitCode::damaged, ExitCode::stopped, ExitCode::interrupted})
    if (static_cast<int>(known) == code) return known;
  return stop_requested != 0 ? ExitCode::interrupted : ExitCode::stopped;
}

// A folder of this run for the files of Open MPI's processes, unless one is named. All runs of a user share one by
// default, which a run that ends removes while another begins: mpirun then says "Permission denied".
class SessionFolder {
 public:
  SessionFolder() {
    std::error_code failed;
    std::string folder = (fs::temp_directory_path(failed) / "plimsoll-mpi-XXXXXX").string();
    if (std::getenv(kVariable) != nullptr || failed || mkdtemp(folder.data()) == nullptr) return;
    folder_ = folder;
    setenv(kVariable, folder.c_str(), 1);
  }
  ~SessionFolder() {
    std::error_code failed;
    if (!folder_.empty()) fs::remove_all(folder_, failed);
  }
  SessionFolder(const SessionFolder&) = delete;
  SessionFolder& operator=(const SessionFolder&) = delete;

 private:
  static constexpr const char* kVariable = "OMPI_MCA_orte_tmpdir_base";
  std::string folder_;
};

}  // namespace

ExitCode launch_ranks(int64_t ranks, const std::vector<std::string>& arguments) {
  const PlimsollMpi& mpi = *open_mpi_plugin();
  require_shared_files(mpi);
  const bool open_mpi = is_open_mpi(mpi);
  const std::vector<std::string> words = mpirun_words(open_mpi, ranks, arguments);
  if (open_mpi && !reads_siblings()) set_unless_set("OMPI_MCA_btl_vader_single_copy_mechanism", "none");
  set_unless_set("OMPI_MCA_mpi_yield_when_idle", "1");
  std::optional<SessionFolder> session;
  if (open_mpi) session.emplace();
  listen();
  const pid_t child = fork();
  if (child < 0) throw StoppedError("devices: the system starts no more processes (ulimit -u limits them)");
  if (child == 0) become(words);
  launched = child;
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  launched = 0;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
    throw UsageError(formatted("devices: {} cannot be started", words.front()));
  return code_of(status);
}

std::string find_in_path(const std::string& program) {
  std::string left = environment("PATH");
  while (!left.empty()) {
    const size_t end = left.find(':');
    const std::string file = formatted("{}/{}", left.substr(0, end), program);
    if (access(file.c_str(), X_OK) == 0) return file;
    left = end == std::string::npos ? "" : left.substr(end + 1);
  }
  return "";
}

MpiHere mpi_here() {
  MpiHere here;
  try {
    const PlimsollMpi* const mpi = open_mpi_plugin();
    here.library = library_of(*mpi);
    here.launcher = find_mpirun(is_open_mpi(*mpi));
  } catch (const UsageError& error) {
    here.problem = error.what();
  }
  return here;
}

std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  std::string word;
  while (std::getline(file, word, '\0')) words.push_back(word);
  if (!words.empty()) words.erase(words.begin());
  return words;
}

}  // namespace plimsoll
