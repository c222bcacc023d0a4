#include "ops/gpu_launches.h"

#include "base/units.h"
#include "graph/op_kind.h"
#include "ops/attention/attention_cached_split.h"
#include "ops/loss/linear_cross_entropy_layout.h"
#include "ops/rule.h"

namespace plimsoll {
namespace {

int64_t one_if(bool condition) { return condition ? 1 : 0; }

// Of a product: itself, what it is added to, two parts of the library's (values to clear, parts to add up).
int64_t product_launches(bool library) { return library ? 4 : 1; }

int64_t head_launches(const Graph& graph, const Op& op, bool library) {
  const HeadOperands at = head_operands(op);
  const CrossEntropyProducts products = cross_entropy_products(graph, op);
  const bool adapter = has_adapter(op);
  const bool of_rows = op.kind == OpKind::linear_log_prob_grad;  // it adds nothing up
  const int64_t all_products = 1 + one_if(products.d_x.has_value()) + one_if(products.d_w.has_value()) +
                               one_if(products.low_rank.has_value()) + one_if(products.d_t.has_value()) +
                               one_if(products.d_b.has_value());
  const int64_t gradients = one_if(op.has_output(at.d_x)) + one_if(adapter && op.has_output(at.d_t));
  // Rows are gathered and scattered; losses of the chunk, and their sum.
  const int64_t of_chunk =
      1 + one_if(adapter) + gradients + 1 + one_if(!of_rows) + all_products * product_launches(library);
  const int64_t tokens = input_tensor(graph, op, 0).shape[0];
  return 1 + gradients + ceil_div(tokens, cross_entropy_layout(graph, op).chunk) * of_chunk;
}

int64_t attention_grad_launches(const Op& op) {
  const bool numbers = has_parents(op) && op.attr_int("window") > 0;
  return 4 + 2 + one_if(op.has_output(3)) + one_if(numbers);
}

int64_t attention_cached_launches(const Graph& graph, const Op& op) {
  return one_if(!op.attrs.contains("keys_of")) + 1 + one_if(cached_split(graph, op).parts > 1);
}

// Of x one, of a weight parts and their sum.
int64_t gradient_launches(const Op& op) { return one_if(op.has_output(0)) + 2 * one_if(op.has_output(1)); }

}  // namespace

int64_t gpu_launches(const Graph& graph, const Op& op, bool library) {
  switch (op.kind) {
    case OpKind::fetch_wait:
    case OpKind::store_wait:
      return 0;
    case OpKind::linear:  // a library's is followed by its rider
      return product_launches(library) + one_if(library && op.has_input(5));
    case OpKind::linear_dx:
      return product_launches(library) + one_if(library && op.has_input(4));
    case OpKind::linear_dw:
      return product_launches(library);
    case OpKind::linear_cross_entropy:
    case OpKind::linear_cross_entropy_grad:
    case OpKind::linear_log_prob:
    case OpKind::linear_log_prob_grad:
      return head_launches(graph, op, library);
    case OpKind::attention:
      return 3;  // o, lse and their padding
    case OpKind::attention_grad:
      return attention_grad_launches(op);
    case OpKind::attention_cached:
      return attention_cached_launches(graph, op);
    case OpKind::gla:
      return 5;
    case OpKind::gla_grad:
      return 12;
    case OpKind::gla_cached:
      return 1 + one_if(op.scratch != kNoTensor);
    case OpKind::rms_norm_grad:
    case OpKind::layer_norm_grad:
    case OpKind::short_conv_grad:
    case OpKind::word_scores_grad:
      return gradient_launches(op);
    case OpKind::dora_scale_grad:
      return 1 + one_if(op.has_output(1));
    case OpKind::bias_grad:
    case OpKind::embedding_dw:
    case OpKind::grad_square:
    case OpKind::scatter_rows:
      return 2;
    case OpKind::grad_norm:
      return ceil_div(static_cast<int64_t>(op.inputs.size()) - 1, kSquaresOfLaunch);
    case OpKind::adafactor:
      return 5 + one_if(op.has_output(1));
    default:
      return 1;
  }
}

int64_t gpu_launches(const Graph& program, bool library) {
  int64_t launches = 0;
  for (const Op& op : program.ops()) launches += gpu_launches(program, op, library);
  return launches;
}

}  // namespace plimsoll
