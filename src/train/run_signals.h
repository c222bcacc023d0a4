// Handles a run's signals: SIGINT, SIGTERM, SIGHUP and SIGPIPE end it after the step at hand, SIGUSR1 asks
// for a checkpoint.
#pragma once

namespace plimsoll {

// From now on SIGUSR1 is remembered until take_save_request().
void listen_to_save_requests();
// From now on SIGINT and SIGTERM are remembered; a second one of the same kind ends the process as usual.
// SIGPIPE, and SIGHUP unless it was ignored, are remembered too; `of_launcher`: and SIGUSR2, which stands for
// them where mpirun hands it on.
void listen_to_stop_requests(bool of_launcher = false);

// Name of the first of them; null: none came.
const char* stop_request();
// Returns true if SIGUSR1 came since the last call.
bool take_save_request();

}  // namespace plimsoll
