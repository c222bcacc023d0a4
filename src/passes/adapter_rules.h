// Decides which modules get an adapter, with what rank and scale, and which are trained and saved whole with
// the adapter: PEFT's rules, so that a folder means the same here and there.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "passes/name_pattern.h"

namespace plimsoll {

// The initial values of adapters: A at random and B zero; or a part of the weight, which is taken out of it.
enum class AdapterStart : uint8_t { lora, pissa, olora };

struct LoraOptions {
  int64_t r = 16;
  double alpha = 32.0;
  double dropout = 0.0;  // on the input of A only
  bool rslora = false;   // scale alpha / sqrt(r) instead of alpha / r
  bool dora = false;     // a weight is a trained length of each row times its direction, which LoRA changes
  // Module names or their last parts; "all-linear", or empty: every linear layer of the body.
  std::vector<std::string> targets = {};
  // Other ranks and alphas, by regular expressions that match the end of a module's name; the first that does
  // counts.
  std::vector<std::pair<std::string, int64_t>> rank_pattern = {};
  std::vector<std::pair<std::string, double>> alpha_pattern = {};
  // Numbers of the layers that get adapters; empty: all. The number is the first one in a module's name, or
  // the one behind one of `layers_pattern` ("layers", "block").
  std::vector<int64_t> layers = {};
  std::vector<std::string> layers_pattern = {};
  // Modules, by the ends of their names, that train whole and are saved with the adapter.
  std::vector<std::string> modules_to_save = {};
  AdapterStart start = AdapterStart::lora;
  int64_t start_iterations = 0;  // of PiSSA's decomposition; 0: until it is exact

  // True if all blocks of a stack have the same adapters, as far as the names alone show it.
  [[nodiscard]] bool blocks_are_alike() const;
};

// The shortest end of a module's name that PEFT matches with it and with its like in other blocks: the last
// part; with the one before where that is a number, which would match the block of that number too
// ("gk_proj.0").
std::string target_name(const std::string& module);

class AdapterRules {
 public:
  // Throws UsageError for a pattern that is no regular expression.
  explicit AdapterRules(const LoraOptions& options);

  struct Size {
    int64_t r = 1;
    double scale = 1.0;
  };
  [[nodiscard]] Size size_of(const std::string& module) const;
  // Returns true if a linear layer gets an adapter. Targets that were found are remembered.
  bool targets(const std::string& module);
  // Returns true if a weight ("model.norm.weight") trains whole; such weights are remembered too.
  bool saves(const std::string& weight);

  // Throw UsageError for a target, a layer or a module to save that was not found; `modules`: the linear
  // layers that there are, `all_modules` those that can be saved.
  void require_targets_found(const std::set<std::string>& modules) const;
  void require_saved_found(const std::set<std::string>& all_modules) const;

 private:
  [[nodiscard]] bool in_layers(const std::string& module);

  LoraOptions options_;
  std::vector<std::pair<NamePattern, int64_t>> ranks_;
  std::vector<std::pair<NamePattern, double>> alphas_;
  std::vector<NamePattern> layer_numbers_;
  std::set<std::string> used_, saved_;
  std::set<int64_t> layers_used_;
};

}  // namespace plimsoll
