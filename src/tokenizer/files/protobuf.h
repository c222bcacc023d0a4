// Reads the wire format of protocol buffers, as far as SentencePiece's models need it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace plimsoll {

// A field of a message: of the last three, the one its wire type has.
struct ProtoField {
  uint32_t number;
  uint64_t varint = 0;
  float fixed32 = 0;
  std::string_view bytes;
  enum class Type : uint8_t { varint, fixed64, bytes, fixed32 } type;
};

// Goes through the fields of one message in their order.
class ProtoReader {
 public:
  // `place` names the message in errors.
  ProtoReader(std::string_view message, std::string place) : rest_(message), place_(std::move(place)) {}

  // Empty at the end. Throws DamagedError for bytes that are no message.
  std::optional<ProtoField> next();

 private:
  uint64_t read_varint();
  std::string_view take(uint64_t bytes);
  [[noreturn]] void damaged() const;

  std::string_view rest_;
  std::string place_;
};

}  // namespace plimsoll
