// Writes the README.md of a result: where the weights come from and how they were made, with the front matter
// that the Hugging Face hub reads.
#pragma once

#include <filesystem>
#include <string>

#include "files/run_folder.h"
#include "plan/search/plan.h"
#include "recipe/recipe.h"
#include "runs/run_record.h"

namespace plimsoll {

std::string model_card(const Recipe& recipe, const Plan& plan, const RunRecord& record);

// The card of an adapter folded into `base`, with what the adapter's own card states about its training.
std::string merged_card(const std::filesystem::path& base, const std::filesystem::path& adapter);
// The card of a model written as a GGUF file ("file.gguf, bf16").
std::string gguf_card(const std::filesystem::path& folder, const std::string& file);
// The card of a converted model or adapter: the card next to the original as it is, and `change` ("the
// weights as bf16").
std::string converted_card(const std::filesystem::path& folder, const std::string& change);

// Writes it to the run's folder, unless a README.md lies there that no run wrote.
void write_model_card(RunFolder& folder, const std::string& card);

}  // namespace plimsoll
