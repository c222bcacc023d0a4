// Levels of activation checkpointing in the words of recipes and plans. The pass is in recompute.cc.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/format.h"
#include "passes/recompute.h"

namespace plimsoll {
namespace {

constexpr std::array<std::string_view, kNumRecomputePoints> kPointNames = {"none", "act",       "cheap",
                                                                           "mlp",  "attention", "block"};

}  // namespace

std::string_view to_string(RecomputePoint point) { return kPointNames[static_cast<size_t>(point)]; }

RecomputePoint parse_recompute_point(std::string_view text) {
  const auto found = std::find(kPointNames.begin(), kPointNames.end(), text);
  if (found == kPointNames.end())
    throw UsageError(formatted(
        "'{}' is not a recomputation point; supported: none, act, cheap, mlp, attention, block", text));
  return static_cast<RecomputePoint>(found - kPointNames.begin());
}

RecomputeChoice RecomputeLevels::in_layers(int64_t layers) const {
  if (first_layers == 0 && rest == RecomputePoint::none) return {};
  RecomputeChoice choice{std::vector<RecomputePoint>(static_cast<size_t>(layers), rest), segment};
  std::fill_n(choice.layers.begin(), std::min(first_layers, layers), first);
  return choice;
}

std::optional<RecomputeLevels> levels_of(const RecomputeChoice& choice) {
  RecomputeLevels levels;
  if (choice.layers.empty()) return levels;
  levels = choice.layers.back();
  levels.segment = choice.segment;
  const auto change = std::ranges::find_if(
      choice.layers, [&](RecomputePoint point) { return point != choice.layers.front(); });
  if (change == choice.layers.end()) return levels;
  levels.first = choice.layers.front();
  levels.first_layers = change - choice.layers.begin();
  return levels.in_layers(std::ssize(choice.layers)) == choice ? std::optional(levels) : std::nullopt;
}

}  // namespace plimsoll
