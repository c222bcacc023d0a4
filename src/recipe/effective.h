// Prints the recipe as it was understood, and the part of it that a checkpoint belongs to.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/recipe.h"

namespace plimsoll {

// YAML with every default filled in; reads back to the same Recipe wherever it lies.
std::string effective_yaml(const Recipe& recipe);

// The same as JSON, keys in their groups.
nlohmann::ordered_json effective_json(const Recipe& recipe);

// Canonical JSON ("optimizer.lr": 0.0002, ... in one line, sorted) of the keys that decide what is trained.
// Micro-batches, memory, threads, evaluation, saving and logging are not among them. A file of rows to
// evaluate on is not either, a share taken out of the training rows is.
std::string experiment_fingerprint(const Recipe& recipe);

// data.reading of the run that such a fingerprint is of: runs that began before there was the key lack it.
int64_t reading_of(std::string_view fingerprint);

// Returns true if the run of such a fingerprint began when the order of windows was the only shuffle.
bool began_before_full_shuffle(std::string_view fingerprint);

struct ExperimentDifference {
  std::string key;
  std::string a;  // as a recipe would write it; "" where the key is absent
  std::string b;
  friend bool operator==(const ExperimentDifference&, const ExperimentDifference&) = default;
};
// The keys in which two fingerprints differ. Throws DamagedError for text that is not a fingerprint.
std::vector<ExperimentDifference> experiment_differences(std::string_view a, std::string_view b);

}  // namespace plimsoll
