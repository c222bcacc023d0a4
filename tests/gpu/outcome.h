// An outcome of the check of a card, for one thing that it looked at: a line of JSON each
// (docs/explanation/cuda.md).
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace plimsoll::gpu_check {

struct Outcome {
  std::string name;    // "copies/every size and place"
  std::string detail;  // what was wrong; empty: nothing
  nlohmann::ordered_json figures = nlohmann::ordered_json::object();
};

// The receiver of outcomes. The exit code says if all of them were right.
using Tell = std::function<void(const Outcome&)>;

}  // namespace plimsoll::gpu_check
