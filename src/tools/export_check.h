// Checks of an export before it gets its name: what is in its files is read back and compared with the run.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "chat/chat_template.h"
#include "infer/evaluate.h"
#include "tools/gguf_kinds.h"

namespace plimsoll {

// Two evaluations of the same rows.
struct LossCheck {
  int64_t rows = 0, tokens = 0;  // what the losses are means of
  double run = 0, exported = 0;  // mean losses
  double difference = 0;         // of the rows' losses, the mean of its magnitude over tokens
  double largest = 0;            // of a row, per token
  double tolerance = 0;
};
// Throws DamagedError where the rows differ by more than the tolerance, or are not the same rows. `what`: the
// exported file or folder.
LossCheck compare_losses(const LossResult& run, const LossResult& exported, double tolerance,
                         const std::string& what);

// The largest difference that rounding explains, per token. `kind`: of the weights; `compute`: what both
// evaluations computed in.
double usual_tolerance(GgufKind kind, DType compute);

// Compares model.gguf in `view` with the model that it was made of, tensor by tensor, in bounded memory, and
// its head. Throws DamagedError for what another model, or a rounding beyond that of its types, would explain.
void check_gguf(const std::filesystem::path& view, const std::filesystem::path& model);

// Throws DamagedError where `exported` ends its answers with other tokens than `model`, both model folders, and
// `turn_end`, which a chat template has in addition.
void check_end_tokens(const std::filesystem::path& exported, const std::filesystem::path& model,
                      std::optional<int32_t> turn_end);

// The token that ends an answer of the folder's chat template, where generation_config.json and config.json name
// others.
std::optional<int32_t> turn_end_of(const std::filesystem::path& folder);

// The texts of the tokens that end an answer: the model's, and that of the chat template.
std::vector<std::string> end_texts(const std::filesystem::path& model,
                                   const std::optional<ChatTemplate>& chat);

}  // namespace plimsoll
