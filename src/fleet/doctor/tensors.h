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
  bool is_certain = true;  // false: a shape was guessed, or another one has that size too
};

// Dimensions of a run; 0: not known.
struct RunShape {
  int64_t rows = 0, length = 0;  // of a micro-batch, as it is padded
  int64_t vocabulary = 0, hidden = 0, mlp_width = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t trained = 0;  // parameters
};

// Tensors that a training step of such a run asks for in one piece, in 4 and in 2 bytes: the logits (also without the
// last token, which predicts nothing), attention scores, activations of the MLP and of a layer's boundary, the cache
// of generation, matrices with their gradients and optimizer states, and flat copies of all that is trained.
std::vector<TensorShape> step_tensors(const RunShape& run);
// The first of them whose size rounds to the requested one.
std::optional<TensorShape> shape_of(const Bytes& requested, std::span<const TensorShape> shapes);
// By the shapes that the log itself prints (batch size, length, vocab_size, hidden_size ...); a vocabulary that it does
// not print may be one of the well-known ones.
std::optional<TensorShape> requested_tensor(const Bytes& requested, const Evidence& evidence);

// "1.19 GiB is 4 rows x ...".
std::string tensor_words(const Bytes& requested, const TensorShape& shape);

}  // namespace plimsoll::doctor
