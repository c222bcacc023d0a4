#include "passes/quantise.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/format.h"
#include "graph/op_kind.h"
#include "ops/linear/int8.h"
#include "ops/linear/nf4.h"
#include "ops/operands.h"
#include "ops/rule.h"
#include "passes/name_pattern.h"

namespace plimsoll {
namespace {

// The operand that is quantised, for linear and for dora_norm.
constexpr size_t kQuantised = operand::linear::weight;
static_assert(size_t{operand::dora_norm::weight} == kQuantised);

bool is_linear_of_body(const Graph& graph, const Op& op) {
  const bool reads = op.kind == OpKind::linear || op.kind == OpKind::dora_norm;
  return reads && input_tensor(graph, op, kQuantised).role == Role::frozen_weight &&
         input_tensor(graph, op, kQuantised).parameter.part == WeightPart::body;
}

using Names = std::set<std::string, std::less<>>;

// Returns true if `ends` has the name of the weight's module, or its end after a dot.
bool has_end_of(const Names& ends, std::string_view weight) {
  std::string_view module = weight.substr(0, weight.rfind('.'));
  for (;;) {
    if (ends.contains(module)) return true;
    const size_t dot = module.find('.');
    if (dot == std::string_view::npos) return false;
    module.remove_prefix(dot + 1);
  }
}

class QuantisePass {
 public:
  QuantisePass(const Graph& graph, const QuantiseOptions& options)
      : source_(graph),
        options_(options),
        kept_(options.kept.begin(), options.kept.end()),
        result_(graph.name()) {
    result_.set_blocks(graph.blocks());
    result_.set_axes(graph.axes());
  }

  Graph run() {
    for (const Op& op : source_.ops())
      if (quantises(op)) parts_[op.inputs[kQuantised]] = {op.inputs[kQuantised]};
    copy_tensors();
    for (auto& [weight, inputs] : parts_) add_scales(weight, inputs);
    for (Op op : source_.ops()) {
      if (quantises(op)) op.inputs[kQuantised] = dequantised(op);
      result_.ops().push_back(std::move(op));
    }
    return std::move(result_);
  }

 private:
  [[nodiscard]] bool quantises(const Op& op) const {
    return is_linear_of_body(source_, op) && !has_end_of(kept_, input_tensor(source_, op, kQuantised).name);
  }

  // Tensors keep their numbers, so that ops can be copied as they are.
  void copy_tensors() {
    for (size_t i = 0; i < source_.tensors().size(); ++i) {
      Tensor tensor = source_.tensors()[i];
      if (parts_.contains(static_cast<TensorId>(i))) become_codes(tensor);
      result_.add_tensor(std::move(tensor));
    }
  }

  void become_codes(Tensor& weight) const {
    if (options_.format == WeightFormat::int8) {
      if (weight.shape[1] > kInt8MostInputs)
        throw UsageError(
            formatted("int8 takes rows of at most {} inputs, but {} is {}; use method.type: lora",
                      kInt8MostInputs, weight.name, weight.shape.to_string()));
      weight.dtype = DType::i8;
      return;
    }
    if (weight.shape[1] % 2 != 0)
      throw UsageError(formatted(
          "NF4 packs weights in pairs, but {} {} has an odd number of inputs; use method.type: lora",
          weight.name, weight.shape.to_string()));
    weight.shape = {weight.shape[0], weight.shape[1] / 2};
    weight.dtype = DType::u8;
  }

  void add_scales(TensorId weight, Operands& inputs) {
    const Tensor codes = result_.tensor(weight);
    const auto add = [&](const std::string& name, int64_t elements, DType dtype) {
      inputs.push_back(result_.add_tensor({name,
                                           {elements},
                                           dtype,
                                           Role::frozen_weight,
                                           codes.space,
                                           codes.block,
                                           {.origin = Origin::derived, .decays = false}}));
    };
    if (options_.format == WeightFormat::int8)
      return add(int8_absmax_name(codes.name), codes.shape[0], DType::f32);
    const std::string& name = codes.name;
    const int64_t blocks = nf4_blocks(2 * codes.shape.elements());
    add(name + kAbsmaxSuffix, blocks, options_.nested ? DType::u8 : DType::f32);
    if (!options_.nested) return;
    add(name + kNestedAbsmaxSuffix, nf4_nested_blocks(blocks), DType::f32);
    add(name + kNestedMapSuffix, 256, DType::f32);
    add(name + kNestedOffsetSuffix, 1, DType::f32);
  }

  TensorId dequantised(const Op& reader) {
    const TensorId weight = reader.inputs[kQuantised];
    const Tensor& whole = source_.tensor(weight);
    Op op;
    op.kind = options_.format == WeightFormat::int8 ? OpKind::int8_dequantize : OpKind::nf4_dequantize;
    op.inputs = parts_.at(weight);
    op.outputs = {kNewTensor};
    op.attrs = {{"type", std::string(to_string(whole.dtype))}};
    op.scope = reader.scope;
    op.adapts = reader.adapts;
    op.stage = reader.stage;
    op.block = reader.block;
    op.axis = reader.axis;
    return emit(result_, std::move(op), whole.name + ".dequantized").front();
  }

  const Graph& source_;
  QuantiseOptions options_;
  Names kept_;
  Graph result_;
  std::map<TensorId, Operands> parts_;  // of each weight: the codes, then the scales
};

}  // namespace

int bits_of(WeightFormat format) { return format == WeightFormat::int8 ? 8 : 4; }

const char* to_string(WeightFormat format) { return format == WeightFormat::int8 ? "int8" : "nf4"; }

bool QuantiseOptions::blocks_are_alike() const {
  return std::all_of(kept.begin(), kept.end(), names_no_block);
}

Graph quantise(const Graph& graph, const QuantiseOptions& options) {
  return QuantisePass(graph, options).run();
}

}  // namespace plimsoll
