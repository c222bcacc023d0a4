// The disk as offload uses it: large aligned blocks, past the page cache where the file system allows it.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/error.h"
#include "base/format.h"
#include "base/units.h"
#include "calibrate/measure.h"
#include "files/file.h"
#include "runtime/arena.h"

namespace plimsoll {
namespace {

constexpr int64_t kBlock = 8 * kMiB;

// A file without a name: whatever happens, nothing of it stays.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& folder) {
    std::filesystem::create_directories(folder);
    std::string name = (folder / "plimsoll-calibrate-XXXXXX").string();
    descriptor_ = mkostemp(name.data(), O_DIRECT | O_CLOEXEC);
    if (descriptor_ < 0 && errno == EINVAL) {  // no direct I/O here: plain reads and writes
      name = (folder / "plimsoll-calibrate-XXXXXX").string();
      descriptor_ = mkostemp(name.data(), O_CLOEXEC);
    }
    if (descriptor_ < 0) throw StoppedError(formatted("{}: {}", folder.string(), system_message(errno)));
    unlink(name.c_str());
  }
  ~TemporaryFile() { close(descriptor_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  [[nodiscard]] int descriptor() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

void require_block(ssize_t moved, const std::filesystem::path& folder) {
  if (moved != kBlock)
    throw StoppedError(formatted("{}: {}; choose another folder with --disk-folder", folder.string(),
                                 moved < 0 ? system_message(errno) : "a short transfer"));
}

}  // namespace

void measure_disk(const CalibrateOptions& options, DeviceRates& rates) {
  const int64_t blocks = options.quick ? 8 : 64;
  const TemporaryFile file(options.disk_folder);
  const Arena arena(kBlock, 1);
  const double write = seconds_of([&] {
    for (int64_t i = 0; i < blocks; ++i)
      require_block(pwrite(file.descriptor(), arena.data(), kBlock, i * kBlock), options.disk_folder);
    if (fdatasync(file.descriptor()) != 0)
      throw StoppedError(formatted("{}: {}", options.disk_folder.string(), system_message(errno)));
  });
  const double read = seconds_of([&] {
    for (int64_t i = 0; i < blocks; ++i)
      require_block(pread(file.descriptor(), arena.data(), kBlock, i * kBlock), options.disk_folder);
  });
  const auto bytes = static_cast<double>(blocks * kBlock);
  rates.disk_write = bytes / write;
  rates.disk_read = bytes / read;
  rates.disk_measured = true;
}

}  // namespace plimsoll
