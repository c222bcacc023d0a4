// The parts that builders of forward graphs share: parameters by their names in the checkpoint, ops in the
// block and on the axis at hand, the layers that families have in common. Shapes in names: h_TH is [tokens,
// hidden].
#pragma once

#include "graph/graph.h"
#include "models/spec.h"
#include "ops/rule.h"

namespace plimsoll {

struct BatchShape {
  int64_t tokens;     // T: capacity of the token axis
  int64_t sequences;  // B
  int64_t length;     // S: longest sequence
  // The second text of each sample, where the model writes one: the decoder's axis.
  int64_t target_tokens = 0;
  int64_t target_length = 0;
  // With shared prefixes: the number of segments of their trees, which then delimit the axis instead of whole
  // sequences.
  int64_t segments = 0;

  // True if segments delimit the first axis, and what delimits it.
  [[nodiscard]] bool shares() const { return segments > 0; }
  [[nodiscard]] int64_t delimited() const { return shares() ? segments : sequences; }
};

// The cache that generation keeps between its programs: the sequences that are written, each behind the one
// before it.
struct CacheShape {
  int64_t capacity = 0;   // positions of a sequence; 0: no generation
  int64_t sequences = 1;  // written at once
  bool apart = false;  // each row of the program continues a sequence of its own; else all continue the first
};

// The axis of programs that score sequences whose rows are sequences: a row each, and as many live ones.
// It comes behind those of tokens, and its rows are of the last of them.
inline AxisId sequence_axis(const ModelSpec& spec) { return spec.encoder_decoder ? 2 : 1; }
inline constexpr const char* kSequenceAxisName = "sequences";

// Dropout that a model has itself is for training alone.
enum class Mode : uint8_t { train, evaluate };

// Facts of parameters. Biases and norm weights do not decay, as Hugging Face's Trainer has it.
inline constexpr ParameterInfo kMatrix;
inline constexpr ParameterInfo kNorm{.init = Initialiser::ones, .decays = false};
// Norms of Gemma, whose factor is 1 more than the weight.
inline constexpr ParameterInfo kNormAtZero{.init = Initialiser::zeros, .decays = false};
inline constexpr ParameterInfo kBias{.init = Initialiser::zeros, .decays = false};
inline constexpr ParameterInfo kEmbedding{.part = WeightPart::embedding};
inline constexpr ParameterInfo kHead{.part = WeightPart::head};
inline constexpr ParameterInfo kScoreHead{.origin = Origin::fresh, .part = WeightPart::head};
inline constexpr ParameterInfo kScoreBias{
    .origin = Origin::fresh, .init = Initialiser::zeros, .part = WeightPart::head, .decays = false};

// Builds one forward graph. All parameters are born frozen; passes decide what trains.
class ModelBuilder {
 public:
  ModelBuilder(const ModelSpec& spec, const BatchShape& shape, DType dtype, std::string graph_name, Mode mode,
               const CacheShape& cache = {})
      : spec_(spec),
        shape_(shape),
        cache_(cache),
        dtype_(dtype),
        graph_(std::move(graph_name)),
        mode_(mode) {}

  [[nodiscard]] const ModelSpec& spec() const { return spec_; }
  [[nodiscard]] const BatchShape& shape() const { return shape_; }
  [[nodiscard]] const CacheShape& cache() const { return cache_; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] Mode mode() const { return mode_; }
  [[nodiscard]] Graph& graph() { return graph_; }

  TensorId input(const std::string& name, Shape shape, DType dtype);
  // Ids, positions, samples i32 [T] and seq_starts i32 [B+1] of a token axis of `tokens` rows; where
  // sequences share prefixes, parents i32 [B] of their segments.
  void token_inputs(AxisId axis, int64_t tokens);
  // An input, made before, of the axis at hand.
  [[nodiscard]] TensorId input_named(std::string_view name) const;
  [[nodiscard]] TensorId step() const;

  // The one of that name where there is one.
  TensorId parameter(const std::string& name, Shape shape, const ParameterInfo& facts = kMatrix);
  Operands op(OpKind kind, Operands inputs, Attrs attrs, Operands outputs, const std::string& scope,
              const std::string& name);
  // With one output, which is new.
  TensorId op1(OpKind kind, Operands inputs, Attrs attrs, const std::string& scope, const std::string& name);
  // x W^T (+ bias), by `scope`.weight [out, in] and `scope`.bias.
  TensorId linear(TensorId x, const std::string& scope, int64_t in, int64_t out, bool bias);
  // x W^T without a bias, into a tensor that is there.
  void linear_into(TensorId out, TensorId x, const std::string& scope, int64_t in);
  // RMS norm over groups of `width` values, by `scope`.weight, of the model's form.
  TensorId norm(TensorId x, const std::string& scope, int64_t width) {
    return norm(x, scope, width, spec_.norm_form);
  }
  TensorId norm(TensorId x, const std::string& scope, int64_t width, NormForm form);
  // Layer norm of rows of `width` values, by `scope`.weight and `scope`.bias.
  TensorId layer_norm(TensorId x, const std::string& scope, int64_t width, double eps, bool bias = true);
  // Attention over what is cached for `scope`, with k and v [T, K*D] appended; o [T, N*D]. `bias_table` may
  // be none.
  TensorId cached_attention(TensorId q, TensorId k, TensorId v, Attrs attrs, TensorId bias_table,
                            const std::string& scope, const std::string& name);
  // Causal attention of q [T, N*D] to k, v [T, K*D] of its text: over what is cached where there is a cache, else
  // within sequences or segments that share prefixes; o [T, N*D]. `attrs` has head_dim and window.
  TensorId causal_attention(TensorId q, TensorId k, TensorId v, Attrs attrs, const std::string& scope);
  // A tensor [rows, width] of the cache, the one of that name where there is one.
  TensorId cache_tensor(const std::string& name, int64_t rows, int64_t width);
  // Sines and cosines of the rotary embedding by positions, f32 [T, rotary]: of `rope`, or of other_ropes[which - 1].
  TensorId rope_table(size_t which, Attrs attrs = {}, const std::string& suffix = "");
  // Heads of x [T, N*D] turned by such a table, all of a head or its first values.
  TensorId rotated(TensorId x, TensorId table, const std::string& scope, const std::string& name);
  // The MLP with a gate, by `scope`.gate_proj, up_proj (or gate_up_proj) and down_proj.
  TensorId gated_mlp(TensorId x, const std::string& scope);
  // x itself where nothing is dropped.
  TensorId dropout(TensorId x, double probability, const std::string& scope);

  // Adds the sequences' axis, in programs that score sequences: its inputs are for each sequence the row that
  // decides (scored_rows), and samples, positions and seq_starts as token axes have them.
  void add_sequence_axis();
  // True if there is that axis: a program that scores, while the model below the head is built.
  [[nodiscard]] bool scores() const { return std::ssize(graph_.axes()) > sequence_axis(spec_); }
  // Returns true if layer `index` of a stack of `layers` is the last before scores: once it has the keys and
  // values of all rows, it continues with those that decide.
  [[nodiscard]] bool decides(int64_t index, int64_t layers) const;
  // The rows of x [T, ..] that decide, [B, ..]; what follows is of the sequences' axis.
  TensorId deciding(TensorId x, const std::string& scope, const std::string& name);
  // Attention of queries of the sequences' axis to all keys of the tokens': completes the attributes, and
  // returns key_starts.
  TensorId attend_to_sequences(Attrs& attrs) const;
  // tanh(x W^T + bias), a square layer before the head of a model that scores sequences.
  TensorId dense_and_tanh(TensorId x, const std::string& scope, bool fresh);

  TensorId embedding_table();
  // factor * x; x itself where the factor is 1.
  TensorId scaled(TensorId x, double factor, const std::string& scope, const std::string& name);
  // The rows of the table that the ids name, times the model's factor; its padding row is not trained by them.
  TensorId embedded(TensorId ids, TensorId table, const std::string& scope);
  // [V, H]; refused where the model's head scores sequences.
  TensorId head();

  // Further ops belong to a block, until end_block().
  void begin_block(const std::string& name, const std::string& kind) {
    block_ = graph_.add_block({name, kind});
  }
  void end_block() { block_ = kNoBlock; }
  [[nodiscard]] BlockId block() const { return block_; }
  // Further ops have the rows of that axis.
  void set_axis(AxisId axis) { axis_ = axis; }
  // The prefix of the model's names, where a head is above it: "" or "transformer.".
  void set_prefix(std::string_view prefix) { prefix_ = prefix; }
  [[nodiscard]] const std::string& prefix() const { return prefix_; }
  [[nodiscard]] AxisId axis() const { return axis_; }

 private:
  const ModelSpec& spec_;
  BatchShape shape_;
  CacheShape cache_;
  DType dtype_;
  Graph graph_;
  Mode mode_;
  BlockId block_ = kNoBlock;
  AxisId axis_ = kFirstAxis;
  std::string prefix_;
};

}  // namespace plimsoll
