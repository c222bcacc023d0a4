#include "fleet/doctor/tensors.h"

#include <algorithm>
#include <array>

#include "base/format.h"
#include "base/units.h"

namespace plimsoll::doctor {
namespace {

constexpr int64_t kLeastLogits = 256 * kMiB;  // smaller sizes are those of many tensors
constexpr int64_t kMost = int64_t{1} << 24;   // of a dimension: products stay in 64 bits

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

}  // namespace

std::vector<TensorShape> logit_shapes(int64_t rows, int64_t length, int64_t vocabulary) {
  std::vector<TensorShape> shapes;
  if (rows <= 0 || length <= 0 || rows > kMost / length) return shapes;
  for (const int64_t bytes : {4, 2})
    for (const int64_t tokens : {length, length - 1})
      shapes.push_back(logits(formatted("{}{}{} tokens", format_count(rows),
                                        rows == 1 ? " row x " : " rows x ", format_count(tokens)),
                              rows * tokens, vocabulary, bytes));
  return shapes;
}

std::optional<TensorShape> shape_of(const Bytes& requested, std::span<const TensorShape> shapes) {
  for (const TensorShape& shape : shapes)
    if (shape.bytes > 0 && shape.bytes >= requested.least() && shape.bytes <= requested.most()) return shape;
  return std::nullopt;
}

std::optional<TensorShape> requested_tensor(const Bytes& requested, const Evidence& evidence) {
  if (requested.value < kLeastLogits) return std::nullopt;
  std::vector<int64_t> vocabularies = stated(evidence, "vocabulary");
  const bool known = !vocabularies.empty();
  if (!known) vocabularies.assign(kVocabularies.begin(), kVocabularies.end());
  for (const int64_t rows : stated(evidence, "rows"))
    for (const int64_t length : stated(evidence, "length"))
      for (const int64_t vocabulary : vocabularies)
        if (auto found = shape_of(requested, logit_shapes(rows, length, vocabulary))) {
          found->is_certain = known;
          return found;
        }
  // A power of two of tokens is what people train with; of a vocabulary that the log names.
  for (const int64_t vocabulary : known ? vocabularies : std::vector<int64_t>{})
    for (int64_t tokens = 1024; tokens <= (int64_t{1} << 20); tokens *= 2)
      for (const int64_t bytes : {4, 2}) {
        TensorShape shape = logits(format_count(tokens) + " tokens", tokens, vocabulary, bytes);
        shape.is_certain = false;
        if (auto found = shape_of(requested, std::span(&shape, 1))) return found;
      }
  return std::nullopt;
}

std::string tensor_words(const Bytes& requested, const TensorShape& shape) {
  return format_bytes(requested.value) + (shape.is_certain ? " is " : " may be ") + shape.words;
}

}  // namespace plimsoll::doctor
