// The experiment that a checkpoint belongs to. Model, adapter and data count by what they hold, wherever they
// lie: a folder that moved is the same experiment.
#pragma once

#include <filesystem>
#include <string>

#include "recipe/recipe.h"

namespace plimsoll {

// experiment_fingerprint(recipe) with the paths in it replaced:
//   model, adapter   hashes of the config file, of tokenizer.json where rows are text, and of the weights
//                    where they are read: names, types, shapes, and the first bytes of every tensor
//   data.train       number and bytes of the files, and a hash of their sizes and of parts of each
// Reads a few KiB of each file, and small files whole.
std::string run_fingerprint(const Recipe& recipe);

// For an adapter, whose base stays where it is: throws StoppedError where the model folder is no longer the
// one that `fingerprint` was formed of. `adapter` is the folder that is whole all the same.
void require_model_unchanged(const Recipe& recipe, const std::string& fingerprint,
                             const std::filesystem::path& adapter);

}  // namespace plimsoll
