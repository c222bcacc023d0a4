// Files of training scripts that put their keys into sections: {model: {name: m}, training: {learning_rate:
// 1e-4}}.
#pragma once

#include <optional>
#include <string_view>

#include "recipe/translate/layer.h"

namespace plimsoll {

// The keys of such sections, without them, under the names that most scripts use; a section's keys for logs
// and for what follows the training go to the report. Unknown keys stay where they are. Nothing where a file
// has no section about the training.
std::optional<Node> open_sections(const Node& root, const Source& source, KeyReport& report);

// Returns true if a file has a section about the training.
bool has_training_section(const Node& root);

// Returns true if a file that names its model as axolotl does has a section about adapters, which axolotl has not.
bool has_adapter_section(const Node& root);

// Returns true if a key names a split: data.train and data.eval name files, and a range of rows is no name of a split.
bool names_split(const Node& node);
inline constexpr const char* kOfSplits = "data.train and data.eval name files here";

// Returns true if a key is the name of such a section.
bool is_section(std::string_view key);

// Returns true if a key is about logs, names, places and people: it changes nothing of the training.
// "train_local_dataset", "reward_data_path": the usual key of the rows that a script's own key names, by its words; ""
// where it names none.
std::string_view rows_named_by(std::string_view key);
bool is_of_logs(std::string_view key);
// A section of a program that draws curves.
bool is_of_tracker(std::string_view key);
// The same of a tool's or a script's file alone: saving, evaluating, machines, and what comes after the training.
bool is_beside_training(std::string_view key);
inline constexpr const char* kBeside =
    "not known here: by its name about saving, evaluating or what comes after the training";
inline constexpr const char* kOfLogs = "about logs and names: it does not change training";

}  // namespace plimsoll
