// config.json: read, and where it is accepted with few layers built into a graph.
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "fuzz/target.h"
#include "models/model.h"
#include "models/spec.h"

using namespace plimsoll;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static FuzzFile file;
  const std::string& path = file.holding(text_of(data, size));
  ModelSpec spec;
  if (!accepted([&] { spec = read_model_spec(path); })) return 0;
  std::vector<float> frequencies(static_cast<size_t>(spec.head_dim / 2 + 1));
  rope_frequencies(spec.rope, spec.head_dim, 16, frequencies);
  for (const float frequency : frequencies)
    check_internal(std::isfinite(frequency), "a frequency is not finite");
  check_internal(count_parameters(spec) > 0, "a model without parameters");
  if (spec.layers <= 4) build_loss(spec, {16, 1, 16, 8, 8}, DType::f32, 8, Mode::train, "loss");
  return 0;
}
