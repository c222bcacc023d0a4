#include "files/event_file.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/crc32c.h"
#include "base/error.h"
#include "files/file.h"
#include "files/test_folder.h"

namespace plimsoll {
namespace {

template <class T>
T number_at(const std::string& bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

TEST(EventFile, checksums_are_those_of_the_published_examples) {
  EXPECT_EQ(crc32c(as_bytes("123456789")), 0xE3069283U);
  EXPECT_EQ(crc32c(as_bytes(std::string(32, '\0'))), 0x8A9136AAU);  // RFC 3720, B.4
}

TEST(EventFile, records_are_framed_and_hold_version_start_and_scalars) {
  const TestFolder folder;
  const auto path = folder.path() / "events";
  {
    EventFile file(path, 1.5, 3);
    file.write(2.5, 4, std::vector<Scalar>{{"train/loss", 0.75}});
  }
  const std::string bytes = read_text(path, 10000);
  std::vector<std::string> events;
  for (size_t at = 0; at < bytes.size();) {
    const auto length = number_at<uint64_t>(bytes, at);
    ASSERT_LE(at + 16 + length, bytes.size());
    events.push_back(bytes.substr(at + 12, length));
    const uint32_t crc = crc32c(as_bytes(events.back()));
    EXPECT_EQ(number_at<uint32_t>(bytes, at + 12 + length), ((crc >> 15) | (crc << 17)) + 0xA282EAD8U);
    at += 16 + length;
  }
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0].substr(9), std::string("\x10\x00\x1a\x0d", 4) + "brain.Event:2");
  EXPECT_EQ(events[1].substr(9), std::string("\x10\x03\x3a\x02\x08\x01", 6));
  const float loss = 0.75F;
  std::string value = std::string("\x0a\x0a") + "train/loss" + "\x15";
  value.append(reinterpret_cast<const char*>(&loss), sizeof loss);
  EXPECT_EQ(events[2].substr(9), std::string("\x10\x04\x2a\x13\x0a\x11") + value);
  EXPECT_EQ(number_at<double>(events[2], 1), 2.5);
}

TEST(EventFile, checksums_of_parts_are_those_of_the_whole) {
  const std::string text = "checksums of parts are those of the whole, wherever it is cut";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const uint32_t first = crc32c(as_bytes(std::string_view(text).substr(0, cut)));
    EXPECT_EQ(crc32c(as_bytes(std::string_view(text).substr(cut)), first), crc32c(as_bytes(text)));
  }
}

TEST(EventFile, a_place_that_cannot_be_written_stops_the_run) {
  const TestFolder folder;
  EXPECT_THROW(EventFile(folder.path() / "absent" / "events", 0, 0), StoppedError);
}

}  // namespace
}  // namespace plimsoll
