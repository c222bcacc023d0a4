#include "train/run_signals.h"

#include <csignal>
#include <initializer_list>

namespace plimsoll {
namespace {

volatile std::sig_atomic_t stop_signal = 0;
volatile std::sig_atomic_t save_requested = 0;

void handle(int signal, void (*handler)(int), unsigned flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = static_cast<int>(flags);
  sigaction(signal, &action, nullptr);
}

}  // namespace

void listen_to_save_requests() {
  handle(
      SIGUSR1, [](int) { save_requested = 1; }, SA_RESTART);
}

void listen_to_stop_requests(bool of_launcher) {
  const auto stop = [](int which) {
    if (stop_signal == 0) stop_signal = which;
  };
  for (const int signal : {SIGINT, SIGTERM}) handle(signal, stop, SA_RESETHAND);
  // The terminal or the reader of the output is gone, and more of the same may come while the run saves.
  handle(SIGPIPE, stop, SA_RESTART);
  if (of_launcher) handle(SIGUSR2, stop, SA_RESTART);
  struct sigaction hangup {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) handle(SIGHUP, stop, SA_RESTART);  // nohup: the run continues
}

const char* stop_request() {
  switch (stop_signal) {
    case 0:
      return nullptr;
    case SIGINT:
      return "SIGINT";
    case SIGHUP:
      return "SIGHUP";
    case SIGPIPE:
      return "SIGPIPE";
    default:
      return "SIGTERM";
  }
}

bool take_save_request() {
  const bool requested = save_requested != 0;
  save_requested = 0;
  return requested;
}

}  // namespace plimsoll
