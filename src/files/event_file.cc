#include "files/event_file.h"

#include <array>
#include <bit>
#include <cstring>

#include "base/crc32c.h"
#include "base/error.h"
#include "files/file.h"

namespace plimsoll {
namespace {

constexpr size_t kMostEventBytes = 1024;

// A stored checksum of data that holds checksums itself would be weak, so the format rotates and shifts it.
uint32_t masked(uint32_t crc) { return std::rotr(crc, 15) + 0xA282EAD8U; }

// A protobuf message of bounded size: keys are field * 8 + wire type.
class Message {
 public:
  void number(int field, uint64_t value) {
    key(field, 0);
    varint(value);
  }
  void real64(int field, double value) {
    key(field, 1);
    raw(&value, sizeof value);
  }
  void real32(int field, float value) {
    key(field, 5);
    raw(&value, sizeof value);
  }
  void text(int field, std::string_view bytes) {
    key(field, 2);
    varint(bytes.size());
    raw(bytes.data(), bytes.size());
  }
  [[nodiscard]] std::string_view bytes() const { return {bytes_.data(), size_}; }

 private:
  void key(int field, int wire) { varint(static_cast<uint64_t>(field) * 8 + static_cast<uint64_t>(wire)); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) byte(static_cast<char>(value | 0x80));
    byte(static_cast<char>(value));
  }
  void byte(char value) { raw(&value, 1); }
  void raw(const void* from, size_t count) {
    check_internal(size_ + count <= bytes_.size(), "an event is larger than its buffer");
    std::memcpy(bytes_.data() + size_, from, count);
    size_ += count;
  }

  std::array<char, kMostEventBytes> bytes_;
  size_t size_ = 0;
};
static_assert(std::endian::native == std::endian::little, "records and numbers are little-endian");

// Event: wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7.
Message begin_event(double wall_time, int64_t step) {
  Message event;
  event.real64(1, wall_time);
  event.number(2, static_cast<uint64_t>(step));
  return event;
}

}  // namespace

EventFile::EventFile(const std::filesystem::path& path, double wall_time, int64_t first_step)
    : file_(path, 0) {
  Message version = begin_event(wall_time, 0);
  version.text(3, "brain.Event:2");
  write_record(version.bytes());
  Message session;  // SessionLog: status = 1, of which 1 is START
  session.number(1, 1);
  Message start = begin_event(wall_time, first_step);
  start.text(7, session.bytes());
  write_record(start.bytes());
}

void EventFile::write(double wall_time, int64_t step, std::span<const Scalar> scalars) {
  Message summary;  // Summary: value = 1; Value: tag = 1, simple_value = 2
  for (const Scalar& scalar : scalars) {
    Message value;
    value.text(1, scalar.tag);
    value.real32(2, static_cast<float>(scalar.value));
    summary.text(1, value.bytes());
  }
  Message event = begin_event(wall_time, step);
  event.text(5, summary.bytes());
  write_record(event.bytes());
}

// Length, its checksum, the bytes, their checksum.
void EventFile::write_record(std::string_view event) {
  std::array<char, kMostEventBytes + 16> record;
  const uint64_t length = event.size();
  std::memcpy(record.data(), &length, sizeof length);
  const uint32_t length_crc = masked(crc32c(as_bytes({record.data(), sizeof length})));
  std::memcpy(record.data() + 8, &length_crc, sizeof length_crc);
  std::memcpy(record.data() + 12, event.data(), event.size());
  const uint32_t event_crc = masked(crc32c(as_bytes(event)));
  std::memcpy(record.data() + 12 + event.size(), &event_crc, sizeof event_crc);
  file_.write({record.data(), 16 + event.size()});
}

}  // namespace plimsoll
