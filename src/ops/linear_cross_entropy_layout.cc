#include "ops/linear_cross_entropy_layout.h"

#include <algorithm>

#include "graph/op_kind.h"
#include "ops/rule.h"

namespace plimsoll {
namespace {

int64_t chunk_of(const Graph& g, const Op& op) {
  return std::min(op.attr_int("chunk"), input_tensor(g, op, 0).shape[0]);
}

}  // namespace

HeadOutputs head_outputs(const Op& op) {
  switch (op.kind) {
    case OpKind::linear_cross_entropy_grad:
      return {1, 2};
    case OpKind::linear_log_prob_grad:
      return {0, 1};
    default:
      return {};
  }
}

CrossEntropyProducts cross_entropy_products(const Graph& g, const Op& op) {
  const int64_t chunk = chunk_of(g, op);
  const Tensor& weight = input_tensor(g, op, 1);
  const int64_t vocab = weight.shape[0];
  const int64_t hidden = weight.shape[1];
  const DType type = weight.dtype;
  CrossEntropyProducts products;
  products.logits = {chunk, vocab, hidden, type, type, type, false, true};
  const HeadOutputs outputs = head_outputs(op);
  if (op.has_output(outputs.d_x))
    products.d_x = MatmulShape{chunk, hidden, vocab, type, type, type, false, false};
  if (op.has_output(outputs.d_weight))
    products.d_w = MatmulShape{vocab, hidden, chunk, type, type, g.tensor(op.output(outputs.d_weight)).dtype,
                               true,  false};
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
  layout.scales = part(op.kind == OpKind::linear_log_prob_grad ? layout.chunk * int64_t{sizeof(float)} : 0);
  layout.x = part(layout.chunk * x.shape[1] * element);
  layout.logits = part(layout.chunk * input_tensor(g, op, 1).shape[0] * element);
  layout.d_x = part(op.has_output(head_outputs(op).d_x) ? layout.chunk * x.shape[1] * element : 0);
  layout.matmul = end;
  return layout;
}

int64_t head_scratch(const Graph& g, const Op& op, const DeviceDescription& device) {
  const CrossEntropyProducts products = cross_entropy_products(g, op);
  int64_t matmul = device.matmul_scratch_bytes(products.logits);
  if (products.d_x) matmul = std::max(matmul, device.matmul_scratch_bytes(*products.d_x));
  if (products.d_w) matmul = std::max(matmul, device.matmul_scratch_bytes(*products.d_w));
  return cross_entropy_layout(g, op).matmul + matmul;
}

// The softmax reads the logits twice and writes them once.
Work head_work(const Graph& g, const Op& op) {
  const CrossEntropyProducts products = cross_entropy_products(g, op);
  const Tensor& x = input_tensor(g, op, 0);
  const int64_t logits = x.shape[0] * input_tensor(g, op, 1).shape[0];
  const auto bytes = static_cast<double>(3 * logits * size_of(x.dtype));
  Work work{.products = {{products.logits}},
            .rows = x.shape[0],
            .rows_at_a_time = products.logits.m,
            .amount = bytes,
            .at = bytes,
            .dtype = x.dtype};
  if (products.d_x) work.products.push_back({*products.d_x});
  if (products.d_w) work.products.push_back({*products.d_w, true});
  return work;
}

Cost head_cost(const Graph& g, const Op& op) {
  const CrossEntropyProducts which = cross_entropy_products(g, op);
  const double products = 1.0 + (which.d_x ? 1.0 : 0.0) + (which.d_w ? 1.0 : 0.0);
  const Tensor& x = input_tensor(g, op, 0);
  const int64_t vocab = input_tensor(g, op, 1).shape[0];
  const auto rows = static_cast<double>(x.shape[0]);
  const auto weights = static_cast<double>(vocab * x.shape[1]);
  const double chunks = rows / static_cast<double>(chunk_of(g, op));
  const auto element = static_cast<double>(size_of(x.dtype));
  return {2.0 * products * rows * weights,
          products * chunks * weights * element + 3.0 * rows * static_cast<double>(vocab) * element};
}

}  // namespace plimsoll
