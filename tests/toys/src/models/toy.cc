// A Qwen3 that halves its hidden states twice before the last norm.
#include "graph/op_kind.h"
#include "models/dense_decoder.h"

namespace plimsoll {
namespace {

void parse(const ConfigReader& in, ModelSpec& spec) {
  parse_dense_decoder(in, {.qk_norm = true, .head_dim = 128, .kv_heads = 32, .max_positions = 32768}, spec);
}

TensorId hidden(ModelBuilder& b) {
  TensorId h_TH = dense_decoder_hidden(b);
  for (const char* name : {"model.half", "model.quarter"})
    h_TH = b.op1(OpKind::halve, {h_TH}, {}, "model", name);
  return h_TH;
}

}  // namespace

const FamilyRule toy_family{.model_type = "toy",
                            .architecture = "ToyForCausalLM",
                            .parse = parse,
                            .inputs = dense_decoder_inputs,
                            .hidden = hidden,
                            .final_norm = dense_decoder_final_norm};

}  // namespace plimsoll
