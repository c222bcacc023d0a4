// TensorBoard's event files: records framed by lengths and masked checksums, each of them a protobuf message
// `Event`. Only the fields that curves need are written, so no protobuf library is.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "files/append_file.h"

namespace plimsoll {

struct Scalar {
  std::string_view tag;  // "train/loss"
  double value = 0;      // stored as f32
};

class EventFile {
 public:
  // Creates `path`, a name that nothing has, and writes the file's version. Curves of other files in the
  // folder end before `first_step` for a reader: what an earlier part of the run wrote after its last
  // checkpoint is hidden. Throws StoppedError.
  EventFile(const std::filesystem::path& path, double wall_time, int64_t first_step);
  // All of one step, or nothing of it. Allocates nothing; not buffered.
  void write(double wall_time, int64_t step, std::span<const Scalar> scalars);

 private:
  void write_record(std::string_view event);

  AppendFile file_;
};

}  // namespace plimsoll
