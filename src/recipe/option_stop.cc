// The key `stop.loss`: a word, a number or null.
#include "recipe/option_types.h"

namespace plimsoll::option_types {

Option stop_loss() {
  constexpr NumberRange kLoss = {0, 1e9};
  return make(
      "stop.loss", [](auto& recipe) -> auto& { return recipe.stop.loss; }, "auto, null or " + describe(kLoss),
      "stop when the loss diverges: when the mean loss of 20 steps is above this; auto: twice the lowest "
      "such mean, plus 1",
      [kLoss](const Node& node, Folder) -> std::optional<StopLoss> {
        if (node.is_word("auto")) return StopLoss{};
        if (node.kind == Node::Kind::null) return StopLoss{StopLoss::Kind::never};
        const auto limit = read_number(node, kLoss);
        if (!limit) return std::nullopt;
        return StopLoss{StopLoss::Kind::limit, *limit};
      },
      [](const StopLoss& stop) {
        if (stop.kind == StopLoss::Kind::limit) return Json(stop.limit);
        return stop.kind == StopLoss::Kind::never ? Json(nullptr) : Json("auto");
      });
}

Option stop_above() {
  constexpr NumberRange kLoss = {0, 1e9};
  return make(
      "stop.above", [](auto& recipe) -> auto& { return recipe.stop.above; }, "null or " + describe(kLoss),
      "stop when the loss is above this in stop.above_steps steps in a row",
      [kLoss](const Node& node, Folder) -> std::optional<std::optional<double>> {
        if (node.kind == Node::Kind::null) return std::optional<double>();
        const auto limit = read_number(node, kLoss);
        if (!limit) return std::nullopt;
        return std::make_optional(limit);
      },
      [](const std::optional<double>& limit) { return print(limit); });
}

}  // namespace plimsoll::option_types
