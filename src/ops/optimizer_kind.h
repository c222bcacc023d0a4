// The optimizers, from optimizers.def.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace plimsoll {

enum class OptimizerKind : uint8_t {
#define OPTIMIZER(name, betas, eps, momentum, own_types) name,
#include "ops/optimizers.def"
#undef OPTIMIZER
};

struct OptimizerTraits {
  OptimizerKind kind;
  std::string_view name;  // in recipes
  bool betas, eps, momentum;
  bool own_types;
};

inline constexpr std::array kOptimizers = {
#define OPTIMIZER(name, betas, eps, momentum, own_types) \
  OptimizerTraits{OptimizerKind::name, #name, betas, eps, momentum, own_types},
#include "ops/optimizers.def"
#undef OPTIMIZER
};

constexpr const OptimizerTraits& traits_of(OptimizerKind kind) {
  return kOptimizers[static_cast<size_t>(kind)];
}

// nullptr for an unknown name.
constexpr const OptimizerTraits* find_optimizer(std::string_view name) {
  for (const OptimizerTraits& traits : kOptimizers)
    if (traits.name == name) return &traits;
  return nullptr;
}

}  // namespace plimsoll
