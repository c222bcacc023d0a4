// The matrix products and the workspace of ops over the rows of the output head that carry a label
// (linear_cross_entropy, linear_log_prob): facts that rules and kernels share.
#pragma once

#include <optional>

#include "device/description.h"
#include "graph/graph.h"
#include "ops/loss/cross_entropy_kernels.h"
#include "ops/operands.h"
#include "ops/rule.h"

namespace plimsoll {

// x, weight and labels: the first inputs of each of these ops.
using HeadInputs = operand::linear_cross_entropy;

// The numbers of an op's other operands; kNoOperand where its kind has none. `t` [T, r] and `b` [V, r], which
// are there or not, are an adapter's: logits are x W^T + scale * t b^T, scale being an attribute. `bias` [V], where it
// is there, is added to each row of them.
inline constexpr size_t kNoOperand = 1000;
struct HeadOperands {
  size_t t, b;
  // Inputs for rows that share prefixes: the row of x that each label asks, and what a label counts (weights)
  // or whose it is (sequences). Several labels may ask the same row.
  size_t label_rows, label_facts;
  size_t bias = kNoOperand;
  size_t d_x = kNoOperand, d_weight = kNoOperand, d_t = kNoOperand, d_b = kNoOperand, d_bias = kNoOperand;
};
HeadOperands head_operands(const Op& op);
bool has_adapter(const Op& op);
// Attribute `accumulate` of the bias's gradient: `accumulate_bias` where that differs from the weight's.
int64_t bias_accumulation(const Op& op);
// Attributes `factor` and `softcap`, which are there where the family's head has them.
LogitMap logit_map(const Op& op);
bool has_label_rows(const Op& op);
// The sequences of linear_log_prob or its gradient that have sums.
int64_t log_prob_sequences(const Graph& graph, const Op& op);

struct CrossEntropyProducts {
  MatmulShape logits;                   // x W^T of a chunk
  std::optional<MatmulShape> d_x;       // d_logits W, where the gradient of x is wanted
  std::optional<MatmulShape> d_w;       // d_logits^T x, where the weight's gradient is wanted
  std::optional<MatmulShape> low_rank;  // of an adapter: t b^T, added to the logits
  std::optional<MatmulShape> d_t;       // d_logits b
  std::optional<MatmulShape> d_b;       // d_logits^T t
};

CrossEntropyProducts cross_entropy_products(const Graph& graph, const Op& op);

// Offsets of the parts in bytes, each a multiple of 64.
struct CrossEntropyLayout {
  int64_t chunk = 0;    // rows taken at a time
  int64_t rows = 0;     // i32 [T]: the rows that carry a target
  int64_t labels = 0;   // i32 [chunk]
  int64_t losses = 0;   // f64 [chunk]
  int64_t scales = 0;   // f32 [chunk], where rows have gradients of their own
  int64_t sums = 0;     // f64 [B, 2] of linear_log_prob, where labels come in no order of sequences
  int64_t x = 0;        // [chunk, H], gathered
  int64_t logits = 0;   // [chunk, V], then their gradient
  int64_t d_x = 0;      // [chunk, H], where wanted
  int64_t t = 0;        // [chunk, r] of an adapter, gathered
  int64_t d_t = 0;      // [chunk, r], where wanted
  int64_t columns = 0;  // f32 partial sums of d_logits' columns, where the bias's gradient is wanted
  int64_t matmul = 0;   // workspace of the products, which is the rest; on GPUs the number of rows, i32
};

CrossEntropyLayout cross_entropy_layout(const Graph& graph, const Op& op);

// Shapes and types of x, weight, t and b; and of the gradients, in the order of HeadOperands.
void require_head(const Graph& graph, const Op& op);
std::vector<OutputSpec> head_gradients(const Graph& graph, const Op& op);
// Attributes of the gradient op, and its outputs: `first`, then those of the gradients.
struct HeadGradient {
  Attrs attrs;
  Operands outputs;
};
HeadGradient begin_head_gradient(GradientContext& context, const Op& forward, Operands first);

// The costs and sizes that their rules give.
Cost head_cost(const Graph& graph, const Op& op);
Work head_work(const Graph& graph, const Op& op);
int64_t head_launches(const Graph& graph, const Op& op, bool library);
int64_t head_scratch(const Graph& graph, const Op& op, const DeviceDescription& device);
// On GPUs: i32 numbers behind the layout's parts, of which the first is how many rows there are. Sums of
// linear_log_prob follow, f64 [B, 2], and the workspace of a library's products, where the device has one.
inline constexpr int64_t kHeadGpuCounts = 16;
int64_t head_gpu_scratch(const Graph& graph, const Op& op, const DeviceDescription& device);
// The start of that workspace.
int64_t head_library_workspace(const Graph& graph, const Op& op);

}  // namespace plimsoll
