// Identifies the tensor whose allocation failed, where shapes of the run are known.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fleet/doctor/evidence.h"

namespace plimsoll::doctor {

struct TensorShape {
  std::string words;  // "4 rows x 2,048 tokens x 152,064 words x 4 bytes: the logits in fp32"
  int64_t bytes = 0;
  bool is_logits = false;
  bool is_certain = true;  // false: a shape was guessed
};

// Logits of so many rows, in 4 and in 2 bytes, also without the last token, which predicts nothing.
std::vector<TensorShape> logit_shapes(int64_t rows, int64_t length, int64_t vocabulary);
// The first of them whose size rounds to the requested one.
std::optional<TensorShape> shape_of(const Bytes& requested, std::span<const TensorShape> shapes);
// By the shapes that the log itself prints (batch size, length, vocab_size); a vocabulary that it does not
// print may be one of the well-known ones.
std::optional<TensorShape> requested_tensor(const Bytes& requested, const Evidence& evidence);

// "1.19 GiB is 4 rows x ...".
std::string tensor_words(const Bytes& requested, const TensorShape& shape);

}  // namespace plimsoll::doctor
