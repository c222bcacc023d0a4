// A recipe, ours or another tool's: JSON where it starts with '{', YAML otherwise. What is understood reads
// back from its effective form as the same experiment.
#include "fuzz/target.h"
#include "recipe/effective.h"
#include "recipe/load/builder.h"
#include "recipe/load/load.h"

using namespace plimsoll;

namespace {

Node tree_of(std::string_view text) {
  try {
    return text.starts_with('{') ? read_json(text) : read_yaml(text);
  } catch (const DocumentError& error) {
    throw UsageError(error.what());
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = text_of(data, size);
  accepted([&] {
    ModelFiles models;
    RecipeBuilder builder(models);
    builder.apply(tree_of(text), {"fuzz.yaml", true, "/nonexistent"});
    const Recipe recipe = builder.finish("fuzz.yaml");
    const std::string yaml = effective_yaml(recipe);
    Recipe again;
    check_internal(accepted([&] { again = parse_recipe(yaml, "again.yaml", "/nonexistent"); }),
                   "the effective recipe is refused:\n" + yaml);
    check_internal(effective_yaml(again) == yaml, "the effective recipe reads back as another one:\n" + yaml);
    check_internal(
        experiment_differences(experiment_fingerprint(recipe), experiment_fingerprint(again)).empty(),
        "the effective recipe is another experiment:\n" + yaml);
  });
  return 0;
}
