#include "passes/pipeline.h"

#include <algorithm>
#include <array>
#include <string>

#include "autodiff/autodiff.h"
#include "base/error.h"
#include "base/format.h"
#include "ops/rule.h"
#include "passes/gather_weights.h"
#include "passes/keep_frozen.h"
#include "passes/merge_adapters.h"
#include "passes/noise.h"
#include "passes/offload_parts.h"
#include "passes/reduce_gradients.h"
#include "passes/reference.h"
#include "passes/transfers.h"
#include "passes/update_in_backward.h"

namespace plimsoll {
namespace {

#ifdef PLIMSOLL_VERIFY_PASSES
constexpr bool kVerifyAll = true;
#else
constexpr bool kVerifyAll = false;
#endif

using Context = PassContext;

bool trains(const Context& c) { return c.purpose == Purpose::train; }
bool has_model(const Context& c) { return c.purpose != Purpose::update; }
bool updates(const Context& c) { return c.purpose == Purpose::update || (trains(c) && c.update_in_backward); }
bool moves(const Context& c) { return c.offload.any(); }

Graph add_adapters(Graph graph, const Context& c) {
  LoraOptions options = *c.lora;
  if (!trains(c)) options.dropout = 0.0;
  return add_lora(graph, options, c.purpose == Purpose::generate);
}

// If the update is a part of the backward pass, gradients are activations, which are not moved here.
Graph move_gradients(Graph graph, const Context& c) {
  const bool several_ranks = c.sharding.ranks > 1;
  return trains(c) ? offload_gradients_of_train(std::move(graph), c.offload, c.transfers, several_ranks)
                   : offload_gradients_of_update(std::move(graph), c.offload, c.transfers, several_ranks);
}

Graph join_update(Graph graph, const Context& c) {
  Sharding sharding = c.sharding;
  if (sharding.gradients()) sharding.stage = ShardStage::states;  // no gradient outlives its update
  const Graph update = build_update(graph, c.precision, c.optimizer, sharding);
  return update_in_backward(std::move(graph), update);
}

// Marks products of f32 to be cut to TF32; kernels for GPUs read the mark.
Graph cut_products(Graph graph) {
  for (Op& op : graph.ops()) {
    const std::vector<Product> products = work_of(graph, op).products;
    if (std::any_of(products.begin(), products.end(),
                    [](const Product& p) { return p.shape.a == DType::f32; }))
      op.attrs["tf32"] = int64_t{1};
  }
  return graph;
}

constexpr std::array kPasses = {
    Pass{PassId::noise, "noise", [](const Context& c) { return trains(c) && c.noise > 0.0; },
         [](Graph graph, const Context& c) { return add_noise(std::move(graph), c.noise); },
         "first: the model and its reference read the same embeddings"},
    Pass{PassId::reference, "reference", [](const Context& c) { return has_model(c) && c.reference; },
         [](Graph graph, const Context&) { return add_reference(graph); },
         "before all that trains: the reference is the model as it is"},
    Pass{PassId::adapters, "adapters", [](const Context& c) { return has_model(c) && c.lora != nullptr; },
         add_adapters,
         "before all else that trains: adapters are layers of the model to everything that follows"},
    Pass{PassId::train_all, "train-all", [](const Context& c) { return trains(c) && c.lora == nullptr; },
         [](Graph graph, const Context& c) { return make_trainable(std::move(graph), c.frozen); },
         "before differentiate, which asks what trains; beside adapters nothing else does"},
    Pass{PassId::quantise, "quantise",
         [](const Context& c) { return has_model(c) && c.quantisation != nullptr; },
         [](Graph graph, const Context& c) { return quantise(graph, *c.quantisation); },
         "after adapters, which stay whole; before differentiate, so that the backward pass reads codes"},
    Pass{PassId::keep_frozen, "keep-frozen", [](const Context& c) { return trains(c) && c.keep_frozen; },
         [](Graph graph, const Context&) { return begin_at_kept(graph); },
         "after all that says what trains; before differentiate, so that nothing below is known any more"},
    Pass{PassId::differentiate, "differentiate", trains,
         [](Graph graph, const Context& c) {
           return differentiate(std::move(graph), {c.precision.gradients});
         },
         "after all that changes the forward pass"},
    Pass{PassId::merge_adapters, "merge-adapters",
         [](const Context& c) { return has_model(c) && c.lora != nullptr; },
         [](Graph graph, const Context&) { return merge_adapters(std::move(graph)); },
         "after differentiate, which takes layers and adapters one by one; before recompute, so that what is "
         "computed again is the same product"},
    Pass{PassId::recompute, "recompute", trains,
         [](Graph graph, const Context& c) { return recompute(std::move(graph), c.recompute); },
         "after differentiate, which says what the backward pass reads; before offload, so that what is "
         "computed again is not moved"},
    Pass{PassId::reduce_gradients, "reduce-gradients",
         [](const Context& c) { return trains(c) && c.sharding.gradients() && !c.update_in_backward; },
         [](Graph graph, const Context& c) { return reduce_gradients(std::move(graph), c.sharding.ranks); },
         "after recompute, which knows of no ranks; before offload, which moves the pieces"},
    Pass{
        PassId::gather_weights, "gather-weights",
        [](const Context& c) { return has_model(c) && c.sharding.weights(); },
        [](Graph graph, const Context& c) { return gather_weights(std::move(graph), c.sharding); },
        "after reduce-gradients, which cuts by whole weights; before update-in-backward, so that a piece changes "
        "behind its last gather, and offload-weights, which moves the pieces"},
    Pass{PassId::update_in_backward, "update-in-backward",
         [](const Context& c) { return trains(c) && c.update_in_backward; }, join_update,
         "after recompute, whose repeated ops read weights too: a weight changes behind its last reader"},
    Pass{PassId::offload_weights, "offload-weights", moves,
         [](Graph graph, const Context& c) {
           return offload_weights(std::move(graph), c.offload, c.transfers);
         },
         "all that moves comes after all that computes: copies are made for readers, and these are known now",
         true},
    Pass{PassId::offload_activations, "offload-activations",
         [](const Context& c) { return moves(c) && trains(c); },
         [](Graph graph, const Context& c) {
           return offload_activations(std::move(graph), c.offload, c.transfers);
         },
         "after offload-weights, whose copies die in the forward pass and wait for nothing", true},
    Pass{PassId::offload_gradients, "offload-gradients",
         [](const Context& c) { return moves(c) && (trains(c) || updates(c)); }, move_gradients,
         "beside the other homes; its squares are taken before slice-updates looks for them", true},
    Pass{PassId::offload_states, "offload-states", [](const Context& c) { return moves(c) && updates(c); },
         [](Graph graph, const Context& c) { return offload_states(std::move(graph), c.offload); },
         "before slice-updates, which asks where an update's operands live", true},
    Pass{
        PassId::slice_updates, "slice-updates", [](const Context& c) { return moves(c) && updates(c); },
        [](Graph graph, const Context& c) { return slice_updates(std::move(graph), c.offload, c.transfers); },
        "after every operand of an update has its home"},
    Pass{PassId::schedule_transfers, "schedule-transfers", moves,
         [](Graph graph, const Context& c) {
           return schedule_transfers(std::move(graph), c.offload.prefetch);
         },
         "after the last pass that adds a transfer; each still has its wait beside it"},
    Pass{PassId::tf32, "tf32", [](const Context& c) { return has_model(c) && c.precision.tf32; },
         [](Graph graph, const Context&) { return cut_products(std::move(graph)); },
         "after the last pass that adds a product, of the backward pass and those that are computed again"},
    Pass{PassId::workspaces, "workspaces", [](const Context&) { return true; },
         [](Graph graph, const Context& c) { return assign_scratch(std::move(graph), *c.device); },
         "last: a workspace belongs to an op whose operands stay as they are"}};

void verify_after(const Pass& pass, const Graph& graph) {
  try {
    verify(graph);
  } catch (const InternalError& error) {
    throw InternalError(formatted("after pass {}: {}", pass.name, error.what()));
  }
}

}  // namespace

std::span<const Pass> passes() { return kPasses; }

const Pass* find_pass(std::string_view name) {
  const auto found =
      std::find_if(kPasses.begin(), kPasses.end(), [&](const Pass& p) { return p.name == name; });
  return found == kPasses.end() ? nullptr : &*found;
}

Graph run_passes(Graph program, const PassContext& context, PassId first, PassId last,
                 const AfterPass& after) {
  for (auto at = static_cast<size_t>(first); at <= static_cast<size_t>(last); ++at) {
    const Pass& pass = kPasses[at];
    if (!pass.applies(context)) continue;
    if (pass.id == kLastPass && context.runs) verify(program);
    program = pass.run(std::move(program), context);
    if ((kVerifyAll || after) && !(pass.offloaded && updates(context))) verify_after(pass, program);
    if (after) after(pass, program);
  }
  return program;
}

}  // namespace plimsoll
