#include "prepare/resolved.h"

#include "base/error.h"
#include "base/format.h"
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

namespace {

// A folder that is quantised is read as it is.
void require_stored(const Recipe& recipe, const QuantiseOptions& stored) {
  if (recipe.init != Init::weights) return;
  const int bits = bits_of(stored.format);
  if (recipe.method.type != MethodType::qlora)
    throw UsageError(formatted(
        "{}: holds its weights in {} bits (bitsandbytes), which only method.type: qlora reads{}",
        recipe.model, bits, bits == 8 ? ", with method.bits: 8 (--method qlora --set method.bits=8)" : ""));
  if (bits != recipe.method.bits)
    throw UsageError(
        formatted("{}: holds its weights in {} bits (bitsandbytes); say method.bits: {} (--set "
                  "method.bits={}), or name the 16-bit model that they were made from",
                  recipe.model, bits, bits, bits));
}

}  // namespace

QuantiseOptions quantisation_of(const Resolved& resolved) {
  const Recipe& recipe = resolved.recipe;
  const std::filesystem::path& base = resolved.paths.base;
  const auto stored =
      stored_quantisation(base, resolved.files->config(base), [&] { return resolved.files->spec(base); });
  if (stored) require_stored(recipe, *stored);
  QuantiseOptions options = stored ? *stored : quantisation_of(recipe);
  if (recipe.method.unquantised)
    options.kept = *recipe.method.unquantised;
  else if (!stored)
    options.kept = unquantised_modules(resolved.files->spec(base));
  return options;
}

}  // namespace plimsoll
