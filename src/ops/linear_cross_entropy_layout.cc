#include "ops/linear_cross_entropy_layout.h"

#include <algorithm>

#include "ops/rule.h"

namespace plimsoll {
namespace {

int64_t chunk_of(const Graph& g, const Op& op) {
  return std::min(op.attr_int("chunk"), input_tensor(g, op, 0).shape[0]);
}

}  // namespace

CrossEntropyProducts cross_entropy_products(const Graph& g, const Op& op) {
  const int64_t chunk = chunk_of(g, op);
  const Tensor& weight = input_tensor(g, op, 1);
  const int64_t vocab = weight.shape[0];
  const int64_t hidden = weight.shape[1];
  const DType type = weight.dtype;
  CrossEntropyProducts products;
  products.logits = {chunk, vocab, hidden, type, type, type, false, true};
  if (op.has_output(1)) products.d_x = MatmulShape{chunk, hidden, vocab, type, type, type, false, false};
  if (op.has_output(2))
    products.d_w = MatmulShape{vocab, hidden, chunk, type, type, g.tensor(op.outputs[2]).dtype, true, false};
  return products;
}

CrossEntropyLayout cross_entropy_layout(const Graph& g, const Op& op) {
  const Tensor& x = input_tensor(g, op, 0);
  const int64_t element = size_of(x.dtype);
  int64_t end = 0;
  const auto part = [&](int64_t bytes) {
    const int64_t begin = end;
    end += (bytes + 63) / 64 * 64;
    return begin;
  };
  CrossEntropyLayout layout;
  layout.chunk = chunk_of(g, op);
  layout.rows = part(x.shape[0] * int64_t{sizeof(int32_t)});
  layout.labels = part(layout.chunk * int64_t{sizeof(int32_t)});
  layout.losses = part(layout.chunk * int64_t{sizeof(double)});
  layout.x = part(layout.chunk * x.shape[1] * element);
  layout.logits = part(layout.chunk * input_tensor(g, op, 1).shape[0] * element);
  layout.d_x = part(op.has_output(1) ? layout.chunk * x.shape[1] * element : 0);
  layout.matmul = end;
  return layout;
}

}  // namespace plimsoll
