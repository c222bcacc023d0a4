// Cases on the emulated card.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "gpu/emulator.h"
#include "harness/op_harness.h"
#include "ops/gpu_kernel.h"

namespace plimsoll::harness {

// Returns true if all ops of the graph have kernels for GPUs.
bool has_gpu_kernels(const Graph& graph);
// Cases all of whose ops have them.
std::vector<OpCase> gpu_cases();
// Cases that run the code of others, in other sizes: what does not depend on sizes need not be asked of them.
inline constexpr std::string_view kCodeOfOthers[] = {
    "attention_grad_of_several_tiles_of_40_values",
    "attention_grad_of_several_tiles_of_96_values_in_a_window",
    "attention_grad_of_several_tiles_of_256_values",
    "attention_grad_of_several_tiles_with_far_bias",
    "attention_grad_of_several_tiles_with_farther_bias",
    "attention_grad_of_large_trees",
    "attention_grad_of_large_trees_in_a_window",
    "attention_grad_of_trees_of_160_values",
    "attention_grad_over_trees_in_a_window_of_two",
    "gla_over_large_trees",
    "gla_grad_over_large_trees",
    "delta_rule_over_large_trees",
    "delta_rule_grad_over_large_trees",
    "delta_rule_grad_many_chunks",
    "delta_rule_heads_of_128",
    "delta_rule_grad_heads_of_128",
    "delta_rule_grad_wide",
    "delta_rule_cached_behind_9_wide",
    "delta_rule_grad_hard_gates",
    "delta_rule_grad_steep",
    "delta_rule_grad_flat"};
bool runs_code_of_others(const OpCase& c);
// The types of a case, and f16 behind those of one that has f32 and others: not where gradients would be f16,
// which in runs are f32.
std::vector<DType> gpu_dtypes(const OpCase& c);

// Returns true if the op is products of matrices, which a library may compute.
bool has_products(OpKind kind);

// The emulated card, and others for which kernels of the graph's ops choose other tiles.
std::vector<CardFacts> cards_for(const Graph& graph);

// `around`, where given, runs each op's call; `library`, where given, computes products.
OpRun run_emulated(
    const Graph& graph, const std::vector<Values>& values, gpu::emulated::Order order,
    std::optional<Sharing> sharing = std::nullopt,
    const std::function<void(const Graph&, const Op&, const AddressOf&, const BoundCall&)>& around = {},
    const CardFacts& card = {}, gpu::ProductLibrary* library = nullptr);

// All bytes of the harness's tensors, with the guards around them.
std::span<std::byte> whole_arena(const Graph& graph, const AddressOf& address);

}  // namespace plimsoll::harness
