#include "ops/loss/linear_cross_entropy_layout.h"

#include <algorithm>
#include <utility>

#include "base/units.h"
#include "graph/op_kind.h"
#include "ops/loss/linear_log_prob.h"
#include "ops/pointwise/elementwise_kernels.h"
#include "ops/rule.h"

namespace plimsoll {
namespace {

template <class at>
constexpr bool has_head_inputs() {
  return size_t{at::x} == HeadInputs::x && size_t{at::weight} == HeadInputs::weight &&
         size_t{at::labels} == HeadInputs::labels;
}
static_assert(has_head_inputs<operand::linear_cross_entropy_grad>() &&
              has_head_inputs<operand::linear_log_prob>() &&
              has_head_inputs<operand::linear_log_prob_grad>());

// `at`: the operands of an op; without gradients.
template <class at>
constexpr HeadOperands inputs_of(size_t label_facts) {
  return {.t = at::t, .b = at::b, .label_rows = at::label_rows, .label_facts = label_facts};
}
template <class at>
constexpr HeadOperands operands_of(size_t label_facts) {
  HeadOperands all = inputs_of<at>(label_facts);
  all.d_x = at::d_x;
  all.d_weight = at::d_weight;
  all.d_t = at::d_t;
  all.d_b = at::d_b;
  return all;
}

int64_t chunk_of(const Graph& g, const Op& op) {
  return std::min(op.attr_int("chunk"), input_tensor(g, op, HeadInputs::x).shape[0]);
}

}  // namespace

HeadOperands head_operands(const Op& op) {
  switch (op.kind) {
    case OpKind::linear_cross_entropy_grad: {
      using at = operand::linear_cross_entropy_grad;
      HeadOperands all = operands_of<at>(at::label_weights);
      all.bias = at::bias;
      all.d_bias = at::d_bias;
      return all;
    }
    case OpKind::linear_log_prob_grad:
      return operands_of<operand::linear_log_prob_grad>(operand::linear_log_prob_grad::label_sequences);
    case OpKind::linear_log_prob:
      return inputs_of<operand::linear_log_prob>(operand::linear_log_prob::label_sequences);
    default: {
      using at = operand::linear_cross_entropy;
      HeadOperands all = inputs_of<at>(at::label_weights);
      all.bias = at::bias;
      return all;
    }
  }
}

bool has_adapter(const Op& op) { return op.has_input(head_operands(op).t); }
int64_t bias_accumulation(const Op& op) {
  return op.attr_int(op.attrs.contains("accumulate_bias") ? "accumulate_bias" : "accumulate");
}
bool has_label_rows(const Op& op) { return op.has_input(head_operands(op).label_rows); }

LogitMap logit_map(const Op& op) {
  const auto value = [&](const char* name, double otherwise) {
    return static_cast<float>(op.attrs.contains(name) ? op.attr_float(name) : otherwise);
  };
  return {.factor = value("factor", 1.0), .cap = value("softcap", 0.0)};
}

int64_t log_prob_sequences(const Graph& g, const Op& op) {
  return has_label_rows(op) ? op.attr_int("sequences")
                            : input_tensor(g, op, operand::linear_log_prob::seq_starts).shape[0] - 1;
}

void require_head(const Graph& g, const Op& op) {
  const Tensor& x = input_tensor(g, op, HeadInputs::x);
  const Tensor& weight = input_tensor(g, op, HeadInputs::weight);
  require(x.shape[1] == weight.shape[1], g, op, "the output head: shapes");
  require(x.dtype == weight.dtype, g, op, "the output head: x and weight differ in type");
  const LogitMap map = logit_map(op);
  require(map.factor > 0 && map.cap >= 0, g, op, "the output head: a factor above 0, and a cap");
  const HeadOperands at = head_operands(op);
  require(op.has_input(at.label_facts) == has_label_rows(op), g, op, "the output head: rows of labels alone");
  for (const size_t i : {at.label_rows, at.label_facts})
    require(!op.has_input(i) || input_tensor(g, op, i).shape == input_tensor(g, op, HeadInputs::labels).shape,
            g, op, "the output head: a row and what it counts for each label");
  if (op.has_input(at.bias)) {
    const Tensor& bias = input_tensor(g, op, at.bias);
    require(bias.shape == Shape{weight.shape[0]} && bias.dtype == x.dtype, g, op,
            "the output head: a number of its type for each row as bias");
  }
  if (!has_adapter(op)) return;
  const Tensor& t = input_tensor(g, op, at.t);
  const Tensor& b = input_tensor(g, op, at.b);
  require(t.shape == Shape{x.shape[0], b.shape[1]} && b.shape[0] == weight.shape[0], g, op,
          "the output head: shapes of its adapter");
  require(t.dtype == x.dtype && b.dtype == x.dtype, g, op, "the output head: the type of its adapter");
}

std::vector<OutputSpec> head_gradients(const Graph& g, const Op& op) {
  const HeadOperands at = head_operands(op);
  const Tensor& x = input_tensor(g, op, HeadInputs::x);
  std::vector<OutputSpec> specs = {
      {"", x.shape, x.dtype},
      {".grad", input_tensor(g, op, HeadInputs::weight).shape, gradient_dtype(g, op, at.d_weight)}};
  const bool biased = op.has_input(at.bias);
  if (has_adapter(op)) {
    const Tensor& t = input_tensor(g, op, at.t);
    specs.push_back({".t", t.shape, t.dtype});
    specs.push_back({".b.grad", input_tensor(g, op, at.b).shape, gradient_dtype(g, op, at.d_b)});
  } else if (biased) {
    specs.resize(specs.size() + 2);  // no gradients of an adapter
  }
  if (biased)
    specs.push_back({".bias.grad", input_tensor(g, op, at.bias).shape, gradient_dtype(g, op, at.d_bias)});
  return specs;
}

HeadGradient begin_head_gradient(GradientContext& ctx, const Op& op, Operands first) {
  HeadGradient made{op.attrs, std::move(first)};
  made.attrs["accumulate"] = int64_t{0};
  const auto add = [&](TensorId weight) {
    if (!ctx.wants(weight)) return made.outputs.push_back(kNoTensor);
    const auto target = ctx.weight_gradient(weight);
    made.outputs.push_back(target.tensor);
    made.attrs["accumulate"] = target.accumulate;
  };
  const auto add_new = [&](TensorId of) { made.outputs.push_back(ctx.wants(of) ? kNewTensor : kNoTensor); };
  add_new(op.inputs[HeadInputs::x]);
  add(op.inputs[HeadInputs::weight]);
  const HeadOperands at = head_operands(op);
  const bool biased = op.has_input(at.bias);
  if (has_adapter(op)) {
    add_new(op.inputs[at.t]);
    add(op.inputs[at.b]);
  } else if (biased) {
    made.outputs.resize(made.outputs.size() + 2, kNoTensor);
  }
  if (biased) add(op.inputs[at.bias]);
  return made;
}

CrossEntropyProducts cross_entropy_products(const Graph& g, const Op& op) {
  const int64_t chunk = chunk_of(g, op);
  const Tensor& weight = input_tensor(g, op, HeadInputs::weight);
  const int64_t vocab = weight.shape[0];
  const int64_t hidden = weight.shape[1];
  const DType type = weight.dtype;
  CrossEntropyProducts products;
  products.logits = {chunk, vocab, hidden, type, type, type, false, true};
  const HeadOperands at = head_operands(op);
  if (op.has_output(at.d_x)) products.d_x = MatmulShape{chunk, hidden, vocab, type, type, type, false, false};
  const auto of_weight = [&](size_t output, int64_t width) {
    return MatmulShape{vocab, width, chunk, type, type, g.tensor(op.output(output)).dtype, true, false};
  };
  if (op.has_output(at.d_weight)) products.d_w = of_weight(at.d_weight, hidden);
  if (!has_adapter(op)) return products;
  const int64_t rank = input_tensor(g, op, at.b).shape[1];
  products.low_rank = MatmulShape{chunk, vocab, rank, type, type, type, false, true};
  if (op.has_output(at.d_t)) products.d_t = MatmulShape{chunk, rank, vocab, type, type, type, false, false};
  if (op.has_output(at.d_b)) products.d_b = of_weight(at.d_b, rank);
  return products;
}

std::vector<Product> all_products(const CrossEntropyProducts& products) {
  std::vector<Product> all = {{products.logits}};
  const auto add = [&](const std::optional<MatmulShape>& shape, bool adds) {
    if (shape) all.push_back({*shape, adds});
  };
  add(products.low_rank, true);
  add(products.d_x, false);
  add(products.d_w, true);
  add(products.d_t, false);
  add(products.d_b, true);
  return all;
}

CrossEntropyLayout cross_entropy_layout(const Graph& g, const Op& op) {
  const Tensor& x = input_tensor(g, op, HeadInputs::x);
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
  const bool scaled = op.kind == OpKind::linear_log_prob_grad ||
                      (op.kind == OpKind::linear_cross_entropy_grad && has_label_rows(op));
  layout.scales = part(scaled ? layout.chunk * int64_t{sizeof(float)} : 0);
  const bool sums = op.kind == OpKind::linear_log_prob && has_label_rows(op);
  layout.sums = part(sums ? op.attr_int("sequences") * kNumLogProbs * int64_t{sizeof(double)} : 0);
  layout.x = part(layout.chunk * x.shape[1] * element);
  layout.logits = part(layout.chunk * input_tensor(g, op, HeadInputs::weight).shape[0] * element);
  layout.d_x = part(op.has_output(head_operands(op).d_x) ? layout.chunk * x.shape[1] * element : 0);
  const int64_t low_rank =
      has_adapter(op) ? layout.chunk * input_tensor(g, op, head_operands(op).t).shape[1] * element : 0;
  layout.t = part(low_rank);
  layout.d_t = part(op.has_output(head_operands(op).d_t) ? low_rank : 0);
  const int64_t vocab = input_tensor(g, op, HeadInputs::weight).shape[0];
  layout.columns = part(op.has_output(head_operands(op).d_bias)
                            ? column_sum_blocks(layout.chunk) * vocab * int64_t{sizeof(float)}
                            : 0);
  layout.matmul = end;
  return layout;
}

namespace {

int64_t products_scratch(const Graph& g, const Op& op, const DeviceDescription& device) {
  int64_t bytes = 0;
  for (const Product& product : all_products(cross_entropy_products(g, op)))
    bytes = std::max(bytes, device.matmul_scratch_bytes(product.shape));
  return bytes;
}

}  // namespace

int64_t head_launches(const Graph& g, const Op& op, bool library) {
  const auto one_if = [](bool condition) { return int64_t{condition ? 1 : 0}; };
  const HeadOperands at = head_operands(op);
  const CrossEntropyProducts products = cross_entropy_products(g, op);
  const bool adapter = has_adapter(op);
  const bool of_rows = op.kind == OpKind::linear_log_prob_grad;  // it adds nothing up
  const auto all = static_cast<int64_t>(all_products(products).size());
  const int64_t gradients = one_if(op.has_output(at.d_x)) + one_if(adapter && op.has_output(at.d_t));
  // Rows are gathered and scattered; losses of the chunk, and their sum.
  const int64_t of_bias = 2 * one_if(op.has_output(at.d_bias));
  const int64_t of_chunk =
      1 + one_if(adapter) + gradients + 1 + one_if(!of_rows) + of_bias + all * product_launches(library);
  const int64_t tokens = input_tensor(g, op, HeadInputs::x).shape[0];
  return 1 + gradients + ceil_div(tokens, cross_entropy_layout(g, op).chunk) * of_chunk;
}

int64_t head_scratch(const Graph& g, const Op& op, const DeviceDescription& device) {
  return cross_entropy_layout(g, op).matmul + products_scratch(g, op, device);
}

int64_t head_library_workspace(const Graph& g, const Op& op) {
  const int64_t sequences = op.kind == OpKind::linear_log_prob ? log_prob_sequences(g, op) : 0;
  return cross_entropy_layout(g, op).matmul + kHeadGpuCounts * int64_t{sizeof(int32_t)} +
         sequences * kNumLogProbs * int64_t{sizeof(double)};
}

int64_t head_gpu_scratch(const Graph& g, const Op& op, const DeviceDescription& device) {
  return head_library_workspace(g, op) + products_scratch(g, op, device);
}

// The softmax reads the logits twice and writes them once.
Work head_work(const Graph& g, const Op& op) {
  const CrossEntropyProducts products = cross_entropy_products(g, op);
  const Tensor& x = input_tensor(g, op, HeadInputs::x);
  const int64_t logits = x.shape[0] * input_tensor(g, op, HeadInputs::weight).shape[0];
  const auto bytes = static_cast<double>(3 * logits * size_of(x.dtype));
  return {.products = all_products(products),
          .rows = x.shape[0],
          .rows_at_a_time = products.logits.m,
          .amount = bytes,
          .at = bytes,
          .dtype = x.dtype};
}

Cost head_cost(const Graph& g, const Op& op) {
  const Tensor& x = input_tensor(g, op, HeadInputs::x);
  const auto rows = static_cast<double>(x.shape[0]);
  const double chunks = rows / static_cast<double>(chunk_of(g, op));
  const auto element = static_cast<double>(size_of(x.dtype));
  const auto vocab = static_cast<double>(input_tensor(g, op, HeadInputs::weight).shape[0]);
  Cost cost{0, 3.0 * rows * vocab * element};
  for (const Product& product : all_products(cross_entropy_products(g, op))) {
    const MatmulShape& shape = product.shape;
    const double of_a_row = static_cast<double>(shape.m) * static_cast<double>(shape.n) *
                            static_cast<double>(shape.k) / static_cast<double>(chunk_of(g, op));
    cost.flops += 2.0 * rows * of_a_row;
    cost.bytes += chunks * of_a_row * element;
  }
  return cost;
}

}  // namespace plimsoll
