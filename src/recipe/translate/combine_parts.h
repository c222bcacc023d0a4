// Questions that the combining of other tools' keys asks about a layer.
#pragma once

#include <array>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "recipe/option.h"
#include "recipe/translate/layer.h"

namespace plimsoll {

inline bool is_true(const Said* said) { return said != nullptr && said->value.text == "true"; }
inline bool is_word(const Said* said, std::string_view word) {
  return said != nullptr && said->value.text == word;
}

inline std::vector<const Said*> present(std::initializer_list<const Said*> parts) {
  std::vector<const Said*> all;
  for (const Said* part : parts)
    if (part != nullptr) all.push_back(part);
  return all;
}

// Devices that hold parts of one model's layers or of one sequence: together they are one process of the batch.
inline constexpr std::array<std::string_view, 4> kSplits = {"@tensor_parallel", "@pipeline_parallel",
                                                            "@context_parallel", "@sequence_parallel"};

// The part that names what starts the training: a script's name, or a tool's command.
inline constexpr const char* kProgramPart = "@program";
// That name where a file has a script's arguments and names no script.
inline constexpr const char* kScriptOfFile = "the script of this file";
// The note that all weights are trained, until a method is given.
inline constexpr const char* kTrainersMethod = "method of the Trainer";
// The name of the user's own training script; "" where the recipe does not belong to one.
inline std::string own_script(const Layer& layer) {
  const Said* program = layer.part(kProgramPart);
  return layer.is_of_scripts() && program != nullptr ? program->value.text : "";
}

// The optimizer stores its states in types of its own.
inline bool has_own_states(const Layer& layer) {
  const Node* optimizer = layer.given("optimizer.name");
  const OptimizerTraits* known = optimizer != nullptr ? find_optimizer(optimizer->text) : nullptr;
  return known != nullptr && known->own_types;
}
// bf16 weights and gradients; the states are such an optimizer's business.
inline constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kPureWeights = {
    {{"precision.weights", "bf16"},
     {"precision.gradients", "bf16"},
     {"precision.states", "fp32"},
     {"precision.rounding", "stochastic"}}};

void combine_named_bits(Layer& layer);
// The keys of DeepSpeed or FSDP in force.
std::vector<const Said*> keys_of_launch(const Layer& layer);
// DeepSpeed, and accelerate's FSDP under autocast, train an fp32 copy of weights that were loaded in bf16.
bool keeps_whole_copy(const Layer& layer);

// Returns true for the name of a file of theirs that is not on this machine.
bool is_missing_file(const Layer& layer, const Node& said);
// The tree of a DeepSpeed section or file; nothing for one that a tool ships, known by its name alone, and for one that
// is missing, which a note names (combine_deepspeed.cc). Throws UsageError.
std::optional<Node> deepspeed_config(Layer& layer, const Node& said);
// Takes the optimizer and the schedule that it brings, which are then those of the training. Throws UsageError.
void take_deepspeed_trainer(Layer& layer, const Said& file, const Node& config);
// Emits such a schedule; returns false if the recipe has no such schedule.
bool combine_deepspeed_schedule(Layer& layer);

// The tree of a file of the model; nothing if it is damaged, which reading the model reports.
std::optional<Node> read_whole(const Layer& layer, const Node& at, const std::filesystem::path& file);

inline std::string percent(double share) { return to_yaml(Json(share * 100.0)) + "%"; }

}  // namespace plimsoll
