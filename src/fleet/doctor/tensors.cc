#include "fleet/doctor/tensors.h"

#include <algorithm>
#include <array>

#include "base/format.h"
#include "base/units.h"

namespace plimsoll::doctor {
namespace {

constexpr int64_t kLeastLogits = 256 * kMiB;  // smaller sizes are those of many tensors
// PyTorch rounds requests of 10 MiB and more up to 2 MiB, and asks for 20 MiB at once where they are smaller.
constexpr int64_t kRounded = 2 * kMiB, kLeastTensor = 21 * kMiB;
constexpr int64_t kMost = int64_t{1} << 24;  // of a dimension: products stay in 64 bits

// Vocabularies of GPT-2, Llama 2 and Mistral, T5, Mistral 0.3, SmolLM, Phi-4, Llama 3, DeepSeek, Mistral
// Nemo, Qwen, Gemma.
constexpr std::array kVocabularies = {50257,  32000,  32128,  32768,  49152,  100352, 128256,
                                      129280, 131072, 151936, 152064, 256000, 262144};

// Figures of all messages by the name of their row's group.
std::vector<int64_t> stated(const Evidence& evidence, std::string_view name) {
  std::vector<int64_t> values;
  for (const Message& message : evidence.messages)
    if (message.row->sign == Sign::shape)
      if (const auto value = message.number(name); value && *value > 0 && *value < kMost)
        if (std::ranges::find(values, *value) == values.end()) values.push_back(*value);
  return values;
}

TensorShape logits(const std::string& tokens, int64_t count, int64_t vocabulary, int64_t bytes) {
  return {formatted("{} x {} words x {} bytes: the logits in {}", tokens, format_count(vocabulary), bytes,
                    bytes == 4 ? "fp32" : "half precision"),
          count * vocabulary * bytes, true};
}

// Products of dimensions with their names, in 4 and in 2 bytes.
class Shapes {
 public:
  struct Dimension {
    int64_t size;
    const char* name;  // "tokens"; empty: none
  };

  // Leaves out a tensor of which a dimension is not known, or whose bytes do not fit 64 bits.
  void add(const std::vector<Dimension>& dimensions, const char* what) {
    double values = 1;
    int64_t count = 1;
    std::string words;
    for (const Dimension& one : dimensions) {
      values *= static_cast<double>(one.size);
      if (one.size <= 0 || values > 1e17) return;
      count *= one.size;
      words +=
          (words.empty() ? "" : " x ") + format_count(one.size) + (*one.name != '\0' ? " " : "") + one.name;
    }
    for (const int64_t bytes : {4, 2})
      shapes.push_back({formatted("{} x {} bytes: {}", words, bytes, what), count * bytes});
  }

  std::vector<TensorShape> shapes;
};

void add_logits(const RunShape& run, std::vector<TensorShape>& shapes) {
  if (run.rows <= 0 || run.length <= 0 || run.vocabulary <= 0 || run.rows > kMost / run.length) return;
  for (const int64_t bytes : {4, 2})
    for (const int64_t tokens : {run.length, run.length - 1})
      shapes.push_back(logits(formatted("{}{}{} tokens", format_count(run.rows),
                                        run.rows == 1 ? " row x " : " rows x ", format_count(tokens)),
                              run.rows * tokens, run.vocabulary, bytes));
}

// A request may be a size that was rounded up.
bool is_of_size(const Bytes& requested, int64_t bytes) {
  const int64_t rounded = (bytes + kRounded - 1) / kRounded * kRounded;
  return bytes > 0 && ((bytes >= requested.least() && bytes <= requested.most()) ||
                       (bytes >= 10 * kMiB && rounded >= requested.least() && rounded <= requested.most()));
}

// The run as the log prints it, of each dimension the first figure.
RunShape shape_in_log(const Evidence& evidence) {
  const auto first = [&](std::string_view name) {
    const std::vector<int64_t> values = stated(evidence, name);
    return values.empty() ? 0 : values.front();
  };
  RunShape run;
  run.rows = first("rows");
  run.length = first("length");
  run.vocabulary = first("vocabulary");
  run.hidden = first("hidden");
  run.mlp_width = first("mlp_width");
  run.layers = first("layers");
  run.heads = first("heads");
  run.kv_heads = first("kv_heads");
  run.head_dim = first("head_dim");
  if (run.kv_heads == 0) run.kv_heads = run.heads;
  if (run.head_dim == 0 && run.heads > 0) run.head_dim = run.hidden / run.heads;
  return run;
}

// A power of two of tokens is what people train with; of a vocabulary that the log names.
std::optional<TensorShape> guessed_logits(const Bytes& requested, std::span<const int64_t> vocabularies) {
  for (const int64_t vocabulary : vocabularies)
    for (int64_t tokens = 1024; tokens <= (int64_t{1} << 20); tokens *= 2)
      for (const int64_t bytes : {4, 2}) {
        TensorShape shape = logits(format_count(tokens) + " tokens", tokens, vocabulary, bytes);
        shape.is_certain = false;
        if (auto found = shape_of(requested, std::span(&shape, 1))) return found;
      }
  return std::nullopt;
}

}  // namespace

std::vector<TensorShape> step_tensors(const RunShape& run) {
  Shapes made;
  add_logits(run, made.shapes);
  const Shapes::Dimension rows{run.rows, run.rows == 1 ? "row" : "rows"}, tokens{run.length, "tokens"};
  made.add({rows, {run.heads, "heads"}, {run.length, ""}, {run.length, ""}},
           "attention scores that are stored whole");
  made.add({rows, tokens, {run.mlp_width, "values"}}, "an activation of the MLP");
  made.add({rows, tokens, {2 * run.mlp_width, "values"}}, "gates and values of the MLP, made by one matrix");
  made.add({rows, tokens, {run.hidden, "values"}}, "the activations between two layers, or one like them");
  made.add({rows, {run.layers, "layers"}, tokens, {run.hidden, "values"}},
           "the activations between all layers, which recomputing keeps");
  made.add({{2 * run.layers, "keys and values of layers"},
            rows,
            tokens,
            {run.kv_heads, "heads"},
            {run.head_dim, ""}},
           "the cache of keys and values, for generation");
  made.add({{run.vocabulary, "words"}, {run.hidden, "values"}},
           "the embedding or the head, its gradient, or one of its optimizer states");
  made.add({{run.mlp_width, ""}, {run.hidden, ""}},
           "a matrix of the MLP, its gradient, or one of its optimizer states");
  made.add(
      {{run.trained, "parameters"}},
      "all that is trained in one piece: a flat copy of weights, of gradients or of one optimizer state (ZeRO)");
  return made.shapes;
}

std::optional<TensorShape> shape_of(const Bytes& requested, std::span<const TensorShape> shapes) {
  std::optional<TensorShape> found;
  for (const TensorShape& shape : shapes) {
    if (!is_of_size(requested, shape.bytes)) continue;
    if (!found)
      found = shape;
    else if (!shape.is_logits || !found->is_logits)  // with and without the last token they are one tensor
      found->is_certain = false;
  }
  return found;
}

std::optional<TensorShape> requested_tensor(const Bytes& requested, const Evidence& evidence) {
  if (requested.value >= kLeastLogits) {
    std::vector<int64_t> vocabularies = stated(evidence, "vocabulary");
    const bool known = !vocabularies.empty();
    if (!known) vocabularies.assign(kVocabularies.begin(), kVocabularies.end());
    for (const int64_t rows : stated(evidence, "rows"))
      for (const int64_t length : stated(evidence, "length"))
        for (const int64_t vocabulary : vocabularies) {
          std::vector<TensorShape> shapes;
          add_logits({.rows = rows, .length = length, .vocabulary = vocabulary}, shapes);
          if (auto found = shape_of(requested, shapes)) {
            found->is_certain = known;
            return found;
          }
        }
  }
  if (requested.value < kLeastTensor) return std::nullopt;
  if (auto found = shape_of(requested, step_tensors(shape_in_log(evidence)))) return found;
  return requested.value < kLeastLogits ? std::nullopt
                                        : guessed_logits(requested, stated(evidence, "vocabulary"));
}

std::string tensor_words(const Bytes& requested, const TensorShape& shape) {
  return format_bytes(requested.value) + (shape.is_certain ? " is " : " may be ") + shape.words;
}

}  // namespace plimsoll::doctor
