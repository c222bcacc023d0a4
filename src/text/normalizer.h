// Text normalisers of tokenizer.json. Each piece between added tokens is normalised by itself.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "text/json.h"

namespace plimsoll {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // The normalised text: `text` itself where nothing changes, else a view of `storage`.
  virtual std::string_view normalize(std::string_view text, std::string& storage) const = 0;
  [[nodiscard]] virtual int64_t resident_bytes() const = 0;
};

// Null for a null normaliser. Throws UsageError naming what is not supported.
std::unique_ptr<Normalizer> make_normalizer(const Json& json, const std::string& where);

}  // namespace plimsoll
