// Decoders of tokenizer.json: they turn tokens into bytes; invalid UTF-8 is repaired after the last token
// only.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "text/json.h"

namespace plimsoll {

class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual void append_bytes(std::string_view token, std::string& out) const = 0;
};

// Throws UsageError naming what is not supported.
std::unique_ptr<Decoder> make_decoder(const Json& json, const std::string& where);

}  // namespace plimsoll
