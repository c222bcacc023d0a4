#include "base/print.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#include "base/environment.h"
#include "base/error.h"
#include "base/format.h"
#include "base/screen.h"

namespace plimsoll {
namespace {

int first_failure = 0;  // errno of standard output
void (*listener)(std::string_view text) = nullptr;

void remember_failure() {
  if (first_failure == 0) first_failure = errno != 0 ? errno : EIO;
}

}  // namespace

void print(std::string_view text) {
  const std::string shown = printable_text(text);
  errno = 0;
  if (std::fwrite(shown.data(), 1, shown.size(), stdout) != shown.size()) remember_failure();
}

void print_styled(std::span<const StyledText> texts) {
  const bool styles =
      isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr && environment("TERM") != "dumb";
  for (const StyledText& one : texts) {
    const bool styled = styles && one.style != nullptr;
    if (styled) std::printf("\033[%sm", one.style);
    print(one.text);
    if (styled) std::fputs("\033[0m", stdout);
  }
}

void flush_output() {
  errno = 0;
  if (std::fflush(stdout) != 0) remember_failure();
}

void finish_output() {
  flush_output();
  if (std::ferror(stdout) != 0) remember_failure();
  if (first_failure == 0) return;
  throw StoppedError(formatted("standard output: cannot be written: {}; what was printed is not whole",
                               std::generic_category().message(first_failure)));
}

void say(std::string_view text) {
  const std::string shown = printable_text(fitted_to_terminal(text, STDERR_FILENO)) + "\n";
  std::fwrite(shown.data(), 1, shown.size(), stderr);
  if (listener != nullptr) listener(text);
}

void hear_what_is_said(void (*hear)(std::string_view text)) { listener = hear; }

}  // namespace plimsoll
