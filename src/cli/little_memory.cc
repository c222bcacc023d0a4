// Handles a limit on data (ulimit -d) that leaves no memory for the libraries: they crash while they are
// loaded, before main() could report it.
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "base/error.h"

namespace plimsoll {
namespace {

// Measured on two CPUs, in steps of 256 KiB: with 21.5 MiB and less `--version` and `plan` crash among the
// libraries, with more every command starts or says itself that it has too little. An allocator takes more
// where there are more CPUs.
constexpr rlim_t kLeastBytes = rlim_t{40} << 20;

// Nothing but system calls: no library is ready. Sanitizers have to start first, and reserve far more: not
// there.
[[maybe_unused]] void refuse_too_little(int, char**, char**) {
  rlimit data{};
  if (getrlimit(RLIMIT_DATA, &data) != 0 || data.rlim_cur >= kLeastBytes) return;
  constexpr std::string_view kText =
      "does not fit   the limit on data (ulimit -d) is below 40 MiB, too little to start safely\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kText.data(), kText.size());
  _exit(static_cast<int>(ExitCode::does_not_fit));
}

}  // namespace

#ifndef __SANITIZE_ADDRESS__
[[gnu::section(".preinit_array"),
  gnu::used]] void (*const refuse_before_libraries)(int, char**, char**) = refuse_too_little;
#endif

}  // namespace plimsoll
