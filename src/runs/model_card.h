// The README.md beside what a run leaves: where the weights come from and how they were made, with the front
// matter that the Hugging Face hub reads.
#pragma once

#include <filesystem>
#include <string>

#include "files/run_folder.h"
#include "plan/search/plan.h"
#include "recipe/recipe.h"
#include "runs/run_record.h"

namespace plimsoll {

std::string model_card(const Recipe& recipe, const Plan& plan, const RunRecord& record);

// Of an adapter folded into `base`, with what the adapter's own card tells of its training.
std::string merged_card(const std::filesystem::path& base, const std::filesystem::path& adapter);
// Of a model written as a GGUF file ("file.gguf, bf16").
std::string gguf_card(const std::filesystem::path& folder, const std::string& file);
// Of a model or adapter written anew: the card beside it as it is, and `change` ("the weights as bf16").
std::string converted_card(const std::filesystem::path& folder, const std::string& change);

// Writes it to the run's folder, unless a README.md lies there that no run wrote.
void write_model_card(RunFolder& folder, const std::string& card);

}  // namespace plimsoll
