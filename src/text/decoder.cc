#include "text/decoder.h"

#include "text/byte_level.h"

namespace plimsoll {
namespace {

class ByteLevelDecoder final : public Decoder {
 public:
  void append_bytes(std::string_view token, std::string& out) const override {
    append_bytes_of_token(token, out);
  }
};

// A Sequence of ByteLevel and Fuse, which joins what is joined here anyway.
bool is_byte_level(const Json& json) {
  const Json& steps = json.at("decoders");
  bool found = false;
  for (const Json& step : steps) {
    const auto type = step.at("type").get<std::string>();
    if (type == "ByteLevel" && !found)
      found = true;
    else if (type != "Fuse")
      return false;
  }
  return found;
}

}  // namespace

std::unique_ptr<Decoder> make_decoder(const Json& json, const std::string& where) {
  constexpr std::string_view kSupported = "ByteLevel, or a Sequence of ByteLevel and Fuse";
  if (json.is_null()) refuse_component(where, "decoder", "null", kSupported);
  const auto type = json.at("type").get<std::string>();
  if (type == "ByteLevel" || (type == "Sequence" && is_byte_level(json)))
    return std::make_unique<ByteLevelDecoder>();
  refuse_component(where, "decoder", type == "Sequence" ? json.dump() : type, kSupported);
}

}  // namespace plimsoll
