#include "prepare/resolved.h"

#include "base/error.h"
#include "models/family.h"
#include "prepare/task_setup.h"
#include "weights/quantised_weights.h"

namespace plimsoll {

Resolved resolve(Recipe recipe, const ModelPaths& paths, std::shared_ptr<ModelFiles> files) {
  Resolved resolved{std::move(recipe), paths, std::move(files), {}, {}, {}, {}, {}};
  resolved.model = model_of(resolved.recipe, paths, *resolved.files);
  resolved.task = read_task(resolved.recipe, resolved.model);
  if (rule_of(resolved.recipe.task).classes != nullptr)
    resolved.labels = label_names(resolved.recipe, resolved.files->config(paths.base));
  if (resolved.recipe.memory.gpu) resolved.card = planned_card(resolved.recipe);
  return resolved;
}

Resolved resolve(Recipe recipe, std::shared_ptr<ModelFiles> files) {
  const ModelPaths paths{recipe.model, recipe.adapter};
  return resolve(std::move(recipe), paths, std::move(files));
}

Resolved resolve_as(const Resolved& resolved, Recipe recipe) {
  Resolved other = resolve(std::move(recipe), resolved.files);
  other.stated = resolved.stated;
  return other;
}

QuantiseOptions nf4_of(const Resolved& resolved) {
  const Recipe& recipe = resolved.recipe;
  const std::filesystem::path& base = resolved.paths.base;
  const auto stored =
      stored_quantisation(base, resolved.files->config(base), [&] { return resolved.files->spec(base); });
  const bool qlora = recipe.method.type == MethodType::qlora;
  if (stored && !qlora && recipe.init == Init::weights)
    throw UsageError(recipe.model +
                     ": holds its weights in 4 bits (bitsandbytes), which only method.type: qlora reads");
  QuantiseOptions options = stored ? *stored : QuantiseOptions{recipe.method.double_quant};
  if (recipe.method.unquantised)
    options.kept = *recipe.method.unquantised;
  else if (!stored)
    options.kept = unquantised_modules(resolved.files->spec(base));
  return options;
}

}  // namespace plimsoll
