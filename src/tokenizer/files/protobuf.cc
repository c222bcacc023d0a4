#include "tokenizer/files/protobuf.h"

#include <cstring>

#include "base/error.h"

namespace plimsoll {

void ProtoReader::damaged() const { throw DamagedError(place_ + ": not a SentencePiece model, or cut off"); }

uint64_t ProtoReader::read_varint() {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    const auto byte = static_cast<unsigned char>(take(1)[0]);
    value |= uint64_t{byte & 0x7FU} << shift;
    if ((byte & 0x80) == 0) return value;
  }
  damaged();
}

std::string_view ProtoReader::take(uint64_t bytes) {
  if (bytes > rest_.size()) damaged();
  const std::string_view taken = rest_.substr(0, bytes);
  rest_.remove_prefix(bytes);
  return taken;
}

std::optional<ProtoField> ProtoReader::next() {
  if (rest_.empty()) return std::nullopt;
  const uint64_t key = read_varint();
  ProtoField field{};
  if (key >> 3 == 0 || key >> 3 > UINT32_MAX) damaged();
  field.number = static_cast<uint32_t>(key >> 3);
  switch (key & 7) {
    case 0:
      field.type = ProtoField::Type::varint;
      field.varint = read_varint();
      break;
    case 1:
      field.type = ProtoField::Type::fixed64;
      take(8);
      break;
    case 2:
      field.type = ProtoField::Type::bytes;
      field.bytes = take(read_varint());
      break;
    case 5:
      field.type = ProtoField::Type::fixed32;
      std::memcpy(&field.fixed32, take(4).data(), 4);
      break;
    default:
      damaged();
  }
  return field;
}

}  // namespace plimsoll
