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

void listen_to_stop_requests() {
  for (const int signal : {SIGINT, SIGTERM})
    handle(
        signal, [](int which) { stop_signal = which; }, SA_RESETHAND);
}

const char* stop_request() {
  if (stop_signal == 0) return nullptr;
  return stop_signal == SIGINT ? "SIGINT" : "SIGTERM";
}

bool take_save_request() {
  const bool requested = save_requested != 0;
  save_requested = 0;
  return requested;
}

}  // namespace plimsoll
