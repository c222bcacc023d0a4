#include "passes/adapter_rules.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"

namespace plimsoll {
namespace {

constexpr const char* kAllLinear = "all-linear";

// PEFT's rule: the module's whole name, or its end after a dot.
bool matches(const std::string& module, const std::string& target) {
  return module == target || module.ends_with("." + target);
}

std::string shown_names(const std::set<std::string>& modules) {
  std::set<std::string> last_parts;
  for (const std::string& module : modules) last_parts.insert(target_name(module));
  return join(std::vector<std::string>(last_parts.begin(), last_parts.end()), ", ");
}

}  // namespace

std::string target_name(const std::string& module) {
  const size_t last = module.rfind('.') + 1;
  const bool number =
      last < module.size() && module.find_first_not_of("0123456789", last) == std::string::npos;
  return last > 1 && number ? module.substr(module.rfind('.', last - 2) + 1) : module.substr(last);
}

bool LoraOptions::blocks_are_alike() const {
  const auto plain_pattern = [](const auto& entry) { return is_plain_name(entry.first); };
  return layers.empty() && std::all_of(rank_pattern.begin(), rank_pattern.end(), plain_pattern) &&
         std::all_of(alpha_pattern.begin(), alpha_pattern.end(), plain_pattern) &&
         std::all_of(modules_to_save.begin(), modules_to_save.end(), is_plain_name) &&
         std::all_of(targets.begin(), targets.end(), names_no_block);
}

AdapterRules::AdapterRules(const LoraOptions& options) : options_(options) {
  const auto at_end = [](const std::string& pattern) { return formatted("(?:.*\\.)?(?:{})$", pattern); };
  for (const auto& [pattern, r] : options.rank_pattern)
    ranks_.emplace_back(NamePattern(at_end(pattern), pattern, "method.rank_pattern"), r);
  for (const auto& [pattern, alpha] : options.alpha_pattern)
    alphas_.emplace_back(NamePattern(at_end(pattern), pattern, "method.alpha_pattern"), alpha);
  if (std::count(options.targets.begin(), options.targets.end(), kAllLinear) > 0) used_.insert(kAllLinear);
  if (options.layers.empty()) return;
  for (const std::string& pattern : options.layers_pattern)
    layer_numbers_.emplace_back(formatted("(?:.*?\\.)?(?:{})\\.(\\d+)\\.", pattern), pattern,
                                "method.layers_pattern");
  if (layer_numbers_.empty()) layer_numbers_.emplace_back(".*?\\.[^.]*\\.(\\d+)\\.", "", "method.layers");
}

AdapterRules::Size AdapterRules::size_of(const std::string& module) const {
  Size size{options_.r, 1.0};
  double alpha = options_.alpha;
  const auto matched = [&](const auto& entry) { return entry.first.match(module).has_value(); };
  if (const auto own = std::find_if(ranks_.begin(), ranks_.end(), matched); own != ranks_.end())
    size.r = own->second;
  if (const auto own = std::find_if(alphas_.begin(), alphas_.end(), matched); own != alphas_.end())
    alpha = own->second;
  const auto r = static_cast<double>(size.r);
  size.scale = alpha / (options_.rslora ? std::sqrt(r) : r);
  return size;
}

bool AdapterRules::targets(const std::string& module) {
  if (saves(module + ".weight")) return false;
  if (options_.targets.empty()) return in_layers(module);
  bool any = used_.contains(kAllLinear) && in_layers(module);
  for (const std::string& target : options_.targets) {
    if (!matches(module, target)) continue;
    used_.insert(target);
    // A module that is named in full is adapted whatever its layer, as PEFT has it.
    any = any || module == target || in_layers(module);
  }
  return any;
}

bool AdapterRules::in_layers(const std::string& module) {
  if (options_.layers.empty()) return true;
  for (const NamePattern& pattern : layer_numbers_) {
    const auto digits = pattern.match(module);
    if (!digits) continue;
    int64_t number = -1;
    std::from_chars(digits->data(), digits->data() + digits->size(), number);
    const bool in = std::count(options_.layers.begin(), options_.layers.end(), number) > 0;
    if (in) layers_used_.insert(number);
    return in;
  }
  return false;
}

bool AdapterRules::saves(const std::string& weight) {
  bool any = false;
  for (const std::string& name : options_.modules_to_save)
    for (size_t dot = weight.find('.'); dot != std::string::npos; dot = weight.find('.', dot + 1)) {
      if (!std::string_view(weight).substr(0, dot).ends_with(name)) continue;
      saved_.insert(name);
      any = true;
    }
  return any;
}

namespace {

// The matrix that has the target's rows among others, where the model has such a one; else an empty text.
std::string fused_with(const std::string& target, const std::set<std::string>& modules) {
  const std::string name = target.substr(target.rfind('.') + 1);
  for (const auto& [part, whole] :
       {std::pair{"q_proj", "qkv_proj"}, std::pair{"k_proj", "qkv_proj"}, std::pair{"v_proj", "qkv_proj"},
        std::pair{"gate_proj", "gate_up_proj"}, std::pair{"up_proj", "gate_up_proj"}})
    if (name == part && std::any_of(modules.begin(), modules.end(),
                                    [end = std::string(".") + whole](const std::string& module) {
                                      return module.ends_with(end);
                                    }))
      return whole;
  return "";
}

}  // namespace

void AdapterRules::require_targets_found(const std::set<std::string>& modules) const {
  for (const std::string& target : options_.targets)
    if (const std::string fused = fused_with(target, modules); !used_.contains(target) && !fused.empty())
      throw UsageError(formatted(
          "method.targets: '{}' is a part of one matrix here, {}, and adapters of parts are other ones; name {}",
          target, fused, fused));
  for (const std::string& target : options_.targets)
    if (!used_.contains(target))
      throw UsageError(formatted("method.targets: '{}' matches no linear layer or embedding; there are {}",
                                 target, shown_names(modules)));
  for (const int64_t layer : options_.layers)
    if (!layers_used_.contains(layer))
      throw UsageError(formatted(
          "method.layers: no adapted linear layer is in layer {}; layers are counted from 0", layer));
}

void AdapterRules::require_saved_found(const std::set<std::string>& all_modules) const {
  for (const std::string& name : options_.modules_to_save)
    if (!saved_.contains(name))
      throw UsageError(formatted("method.modules_to_save: '{}' matches no module; there are {}", name,
                                 shown_names(all_modules)));
}

}  // namespace plimsoll
