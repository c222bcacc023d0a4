// One attempt of a run and its supervisor: a process of its own that outlives the worker, owns everything the
// command starts, and leaves a record behind.
//
// In the attempt's folder:
//   lock        made once, held while the supervisor lives, with its process id. Its maker runs the
//               command: nothing runs twice.
//   log         what the command prints
//   cancel      asks the supervisor to end it
//   grace       of a worker that took it up: instead of what it was launched with
//   processes   the command's, as the supervisor saw them last: number and birth
//   group       the folder of its control group, where it has one (memory_group.h)
//   memory.json what it takes over time, in bounded room (memory_history.h)
//   launch      what it is to run, where it starts from a file (on another machine)
//   exit.json   what became of it, whole or absent. Its room is taken before the command starts: a full
//               disk does not lose it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace plimsoll::queue {

struct Launch {
  std::filesystem::path folder;  // of the attempt; exists
  std::vector<std::string> words;
  std::vector<std::string> environment;  // NAME=VALUE, set for the command
  std::string working_folder;
  std::string mark;                 // NAME=VALUE, set too: everything of the attempt is known by it
  int64_t host_limit = 0;           // bytes of all its processes; above it the command is ended; 0: none
  double grace_seconds = 30;        // from SIGTERM to SIGKILL
  std::optional<mode_t> mask = {};  // the command's umask; none: this process's
  bool own_group = true;  // a control group where one may be made; not inside of another scheduler's
  // The command asks its processes itself to end, once it is asked: they get no signal of their own. So do
  // the processes of one training, which save together.
  bool hands_signals_on = false;
};

struct Exit {
  int code = -1;  // of the command; -1: it was ended by `signal`, or never started
  int signal = 0;
  bool canceled = false;       // as it was asked to
  bool over_limit = false;     // it took more than its reservation
  bool kernel_killed = false;  // the kernel ended processes for want of memory during the attempt
  bool timed_out = false;      // at the end of the time that it was given
  int64_t peak_bytes = 0;
  double seconds = 0;   // that it ran
  int left_over = 0;    // processes that were still there when the command had ended
  std::string problem;  // why it never started
  bool record_removed = false;
};

// Starts the supervisor as a child of this process, and returns its id. This process must have no other
// thread. Throws StoppedError where the system starts no more processes.
pid_t launch(const Launch& launch);
// Supervises in this process, which must have no other thread, until nothing of the command is left. Nothing
// where another supervisor has, or had, the attempt.
std::optional<Exit> supervise(const Launch& launch);

// In its folder, for a supervisor that starts elsewhere. Throws StoppedError where it cannot be written, and
// DamagedError where it cannot be read.
void write_launch(const Launch& launch);
Launch read_launch(const std::filesystem::path& folder);

enum class Life : uint8_t {
  never_started,  // no lock was made: it may be launched
  alive,
  ended,            // the record is there
  supervisor_lost,  // neither: it was killed, or the machine went down
};
struct AttemptState {
  Life life = Life::never_started;
  pid_t supervisor = 0;  // while alive
  std::optional<Exit> exit;
};
AttemptState look_at(const std::filesystem::path& folder);
// Its record, where that is there.
std::optional<Exit> read_exit(const std::filesystem::path& folder);

// Asks an attempt to end: SIGTERM to its command and all that it started (Launch::hands_signals_on: to the command
// alone), and SIGKILL to all that is left after the grace.
void ask_to_end(const std::filesystem::path& folder);
// Changes the seconds of grace from now on, whatever it was launched with. If they cannot be written, the old
// ones stay.
void set_grace(const std::filesystem::path& folder, double seconds);
std::optional<double> read_grace(const std::filesystem::path& folder);
// Wakes or ends the supervisor of an attempt that was asked to end so long ago: one that was stopped
// (SIGSTOP) is continued, and one that has not ended after twice the grace is ended, with its command.
void wake_or_end_supervisor(const std::filesystem::path& folder, double seconds_since_request,
                            double grace_seconds);
// Ends what a lost supervisor left behind, its control group too: what is in the group, what has the mark,
// and what the supervisor saw (`processes`), with all that these started.
void end_marked(const std::string& mark, const std::filesystem::path& folder);

}  // namespace plimsoll::queue
