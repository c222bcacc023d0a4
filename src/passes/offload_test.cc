// Tests of the offload passes on small programs: which transfers there are, where they start, and what their
// waits guard. That they change no bit is for src/train/offload_run_test.cc.
#include "passes/offload.h"
#include "graph/op_kind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "autodiff/autodiff.h"
#include "base/error.h"
#include "models/model.h"
#include "ops/operands.h"
#include "ops/optimizer/optimizer.h"
#include "ops/rule.h"
#include "ops/transfer.h"
#include "passes/pipeline.h"
#include "passes/recompute.h"
#include "passes/train.h"
#include "passes/transfers.h"

namespace plimsoll {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kTokens = 128;

// Matrices of an MLP have 98,304 elements, two slices of an update; q_proj and o_proj just reach 64 KiB in
// f32, k_proj and v_proj do not.
ModelSpec model(int64_t layers) {
  ModelSpec spec;
  spec.family = "llama";
  spec.architecture = "LlamaForCausalLM";
  spec.hidden = 128;
  spec.mlp_width = 768;
  spec.layers = layers;
  spec.heads = 2;
  spec.kv_heads = 1;
  spec.head_dim = 64;
  spec.vocab = 512;
  spec.max_positions = 4096;
  spec.tied_head = true;
  spec.windows.assign(static_cast<size_t>(layers), 0);
  return spec;
}

Graph forward(int64_t layers, DType dtype = DType::f32) {
  return build_loss(model(layers), {kTokens, 1, kTokens}, dtype, 64, Mode::train, "loss");
}

Graph full(int64_t layers, DType dtype = DType::f32) {
  return differentiate(make_trainable(forward(layers, dtype)), {});
}

OffloadChoice choice_of(PartTarget OffloadChoice::*part, Space space = Space::disk, int64_t prefetch = 1) {
  OffloadChoice choice;
  choice.*part = space;
  choice.prefetch = prefetch;
  choice.slice_elements = kSliceUnit;
  return choice;
}

// The passes of offload alone; the ops' stages show what a program is for.
std::vector<Graph> offload(std::vector<Graph> programs, const OffloadChoice& choice,
                           const OffloadContext& transfers) {
  for (Graph& program : programs) {
    const auto has = [&](Stage stage) {
      return std::any_of(program.ops().begin(), program.ops().end(),
                         [&](const Op& op) { return op.stage == stage; });
    };
    PassContext context;
    context.offload = choice;
    context.transfers = transfers;
    if (has(Stage::backward))
      context.purpose = Purpose::train;
    else if (has(Stage::update))
      context.purpose = Purpose::update;
    context.update_in_backward = has(Stage::backward) && has(Stage::update);
    program = run_passes(std::move(program), context, PassId::offload_weights, PassId::schedule_transfers);
  }
  return programs;
}

Graph offloaded(Graph graph, const OffloadChoice& choice, const OffloadContext& context = {}) {
  Graph result = offload({std::move(graph)}, choice, context)[0];
  verify(result);
  return result;
}

std::vector<size_t> find_ops(const Graph& graph, OpKind kind) {
  std::vector<size_t> found;
  for (size_t i = 0; i < graph.ops().size(); ++i)
    if (graph.ops()[i].kind == kind) found.push_back(i);
  return found;
}

const Op& op_at(const Graph& graph, size_t at) { return graph.ops()[at]; }

std::string offloaded_of(const Graph& graph, const Op& op) { return graph.tensor(offloaded_of(op)).name; }

// Counts how often each offload target is fetched or stored.
std::map<std::string, int> counts_of(const Graph& graph, OpKind kind) {
  std::map<std::string, int> counts;
  for (const size_t at : find_ops(graph, kind)) ++counts[offloaded_of(graph, op_at(graph, at))];
  return counts;
}

bool touches(const Op& op, TensorId id) {
  return std::count(op.inputs.begin(), op.inputs.end(), id) +
             std::count(op.outputs.begin(), op.outputs.end(), id) >
         0;
}

// Every copy is touched by its transfers alone until they are waited for.
void expect_waits_guard_copies(const Graph& graph) {
  for (size_t at = 0; at < graph.ops().size(); ++at) {
    const Op& op = op_at(graph, at);
    if (op.kind != OpKind::fetch && op.kind != OpKind::store) continue;
    const TensorId copy = copy_of(op);
    const OpKind wait = op.kind == OpKind::fetch ? OpKind::fetch_wait : OpKind::store_wait;
    size_t end = at + 1;
    while (end < graph.ops().size() && !(op_at(graph, end).kind == wait && touches(op_at(graph, end), copy)))
      ++end;
    ASSERT_LT(end, graph.ops().size()) << "nothing waits for " << print_op(graph, op);
    for (size_t i = at + 1; i < end; ++i) {
      const auto& outputs = op_at(graph, i).outputs;
      const bool reads_what_comes = op.kind == OpKind::fetch && touches(op_at(graph, i), copy);
      const bool writes = std::count(outputs.begin(), outputs.end(), copy) > 0;
      EXPECT_FALSE(reads_what_comes || writes) << print_op(graph, op_at(graph, i));
    }
  }
}

// The forward or backward pass of layer `layer` begins here.
size_t begin_of(const Graph& graph, Stage stage, int32_t layer) {
  for (size_t i = 0; i < graph.ops().size(); ++i) {
    const Op& op = op_at(graph, i);
    if (op.stage == stage && op.block == layer && !is_transfer(op.kind)) return i;
  }
  return graph.ops().size();
}

TEST(OffloadWeights, every_pass_of_a_layer_fetches_its_large_matrices_once) {
  for (const int64_t prefetch : {0, 1, 2}) {
    const Graph train = offloaded(full(3), choice_of(&OffloadChoice::weights, Space::disk, prefetch));
    expect_waits_guard_copies(train);
    const auto fetched = counts_of(train, OpKind::fetch);
    EXPECT_EQ(fetched.size(), 3U * 5);
    for (const auto& [offloaded, times] : fetched) EXPECT_EQ(times, 2) << offloaded;
    EXPECT_FALSE(fetched.contains("model.layers.0.self_attn.k_proj.weight"));
    EXPECT_FALSE(fetched.contains("model.embed_tokens.weight"));
    EXPECT_THAT(find_ops(train, OpKind::store), IsEmpty());
  }
}

TEST(OffloadWeights, recomputation_shares_the_copies_of_its_layers_backward_pass) {
  const Graph train = offloaded(recompute(full(3), {std::vector(3, RecomputePoint::block), 1}),
                                choice_of(&OffloadChoice::weights));
  for (const auto& [offloaded, times] : counts_of(train, OpKind::fetch)) EXPECT_EQ(times, 2) << offloaded;
}

TEST(OffloadWeights, stay_the_same_tensors_in_all_programs) {
  const Graph train = full(2);
  const Graph update = build_update(train, {}, {});
  const auto programs = offload({train, update, forward(2)}, choice_of(&OffloadChoice::weights), {});
  for (const Graph& program : programs) {
    verify(program);
    EXPECT_EQ(program.tensor(program.find("model.layers.1.mlp.up_proj.weight")).space, Space::disk);
    EXPECT_EQ(program.tensor(program.find("model.norm.weight")).space, Space::device);
  }
  EXPECT_EQ(counts_of(programs[1], OpKind::store)["model.layers.1.mlp.up_proj.weight"], 2);
  EXPECT_EQ(find_ops(programs[2], OpKind::fetch).size(), 2U * 5);
}

TEST(OffloadWeights, adapters_stay_on_the_device) {
  const Graph train = offloaded(differentiate(add_lora(forward(2), {.r = 128, .alpha = 8}), {}),
                                choice_of(&OffloadChoice::weights));
  for (const auto& [offloaded, times] : counts_of(train, OpKind::fetch))
    EXPECT_EQ(offloaded.find(".lora_"), std::string::npos) << offloaded;
}

TEST(TransferSchedule, without_prefetch_every_wait_is_next_to_its_transfer) {
  const Graph train = offloaded(full(2), choice_of(&OffloadChoice::activations, Space::disk, 0));
  for (size_t i = 0; i + 1 < train.ops().size(); ++i) {
    if (op_at(train, i).kind == OpKind::fetch) {
      EXPECT_EQ(op_at(train, i + 1).kind, OpKind::fetch_wait);
    }
    if (op_at(train, i).kind == OpKind::store) {
      EXPECT_EQ(op_at(train, i + 1).kind, OpKind::store_wait);
    }
  }
}

TEST(TransferSchedule, a_layers_weights_come_while_the_layer_before_it_computes) {
  for (const int64_t distance : {1, 2}) {
    const Graph train = offloaded(full(4), choice_of(&OffloadChoice::weights, Space::disk, distance));
    for (const size_t at : find_ops(train, OpKind::fetch)) {
      const int32_t layer = op_at(train, at).block;
      const Stage stage = op_at(train, at).stage;
      const auto ahead = static_cast<int32_t>(distance);
      const int32_t earlier = stage == Stage::forward ? layer - ahead : layer + ahead;
      if (earlier < 0 || earlier > 3) continue;
      EXPECT_LT(at, begin_of(train, stage, earlier)) << print_op(train, op_at(train, at));
      const int32_t later = stage == Stage::forward ? layer - ahead - 1 : layer + ahead + 1;
      if (later >= 0 && later <= 3) {
        EXPECT_GT(at, begin_of(train, stage, later));
      }
    }
  }
}

TEST(OffloadActivations, the_backward_pass_reads_copies_of_what_all_layers_but_the_last_left) {
  const Graph train = offloaded(full(4), choice_of(&OffloadChoice::activations));
  expect_waits_guard_copies(train);
  const auto stored = counts_of(train, OpKind::store);
  EXPECT_THAT(stored, Each(::testing::Field(&std::pair<const std::string, int>::second, 1)));
  EXPECT_EQ(stored.size() % 3, 0U) << "as many in each of three layers";
  EXPECT_TRUE(stored.contains("model.layers.0.mlp.act.home"));
  EXPECT_FALSE(stored.contains("model.layers.3.mlp.act.home"));
  for (const auto& [offloaded, times] : stored) {
    EXPECT_EQ(counts_of(train, OpKind::fetch)[offloaded], 1) << offloaded;
    const TensorId kept = train.find(offloaded.substr(0, offloaded.size() - std::string(".home").size()));
    for (const Op& op : train.ops())
      EXPECT_FALSE(op.stage == Stage::backward && touches(op, kept)) << print_op(train, op);
  }
}

TEST(OffloadActivations, a_store_is_waited_for_when_the_next_layer_is_done) {
  const Graph train = offloaded(full(4), choice_of(&OffloadChoice::activations));
  for (const size_t at : find_ops(train, OpKind::store_wait)) {
    const int32_t layer = op_at(train, at).block;
    EXPECT_GT(at, begin_of(train, Stage::forward, layer + 1));
    if (layer + 2 < 4) {
      EXPECT_LT(at, begin_of(train, Stage::forward, layer + 2));
    }
  }
}

// The copy that is stored into `offloaded`.
TensorId stored_copy(const Graph& graph, const std::string& offloaded) {
  for (const size_t at : find_ops(graph, OpKind::store))
    if (offloaded_of(graph, op_at(graph, at)) == offloaded) return copy_of(op_at(graph, at));
  return kNoTensor;
}

TEST(OffloadGradients, are_squared_and_stored_once_they_are_complete) {
  const Graph train = offloaded(full(2), choice_of(&OffloadChoice::gradients));
  expect_waits_guard_copies(train);
  EXPECT_EQ(counts_of(train, OpKind::store).size(), 2U * 5 + 1);
  EXPECT_THAT(find_ops(train, OpKind::fetch), IsEmpty());
  EXPECT_EQ(find_ops(train, OpKind::grad_square).size(), 2U * 5 + 1);
  // The tied table: the head writes its gradient first, the lookup last.
  const TensorId copy = stored_copy(train, "model.embed_tokens.weight.grad");
  std::vector<OpKind> uses;
  for (const Op& op : train.ops())
    if (touches(op, copy)) uses.push_back(op.kind);
  EXPECT_THAT(uses, ElementsAre(OpKind::linear_cross_entropy_grad, OpKind::embedding_dw, OpKind::grad_square,
                                OpKind::store, OpKind::store_wait));
}

TEST(OffloadGradients, of_several_micro_steps_are_fetched_to_be_added_to) {
  const Graph train = offloaded(full(2), choice_of(&OffloadChoice::gradients), {.accumulation = 3});
  expect_waits_guard_copies(train);
  EXPECT_EQ(counts_of(train, OpKind::fetch), counts_of(train, OpKind::store));
}

TEST(OffloadGradients, the_update_reads_their_squares_instead_of_them) {
  const Graph train = full(2);
  const auto programs =
      offload({train, build_update(train, {}, {})}, choice_of(&OffloadChoice::gradients), {});
  for (const Graph& program : programs) verify(program);
  for (const size_t at : find_ops(programs[1], OpKind::grad_square))
    EXPECT_EQ(programs[1].tensor(op_at(programs[1], at).inputs[operand::grad_square::gradient]).space,
              Space::device);
  const Op& norm = op_at(programs[1], find_ops(programs[1], OpKind::grad_norm)[0]);
  for (size_t i = operand::grad_norm::squares; i < norm.inputs.size(); ++i) {
    const Tensor& square = programs[1].tensor(norm.inputs[i]);
    if (square.role != Role::metric) continue;
    EXPECT_EQ(programs[0].tensor(programs[0].find(square.name)).role, Role::metric) << square.name;
  }
}

Graph update_of(const TrainPrecision& precision, DType dtype = DType::f32) {
  return build_update(full(1, dtype), precision, {});
}

std::vector<const Op*> updates_of(const Graph& update, const std::string& weight) {
  std::vector<const Op*> found;
  for (const Op& op : update.ops())
    if (op.kind == OpKind::adamw && op.scope == weight) found.push_back(&op);
  return found;
}

const char* const kUp = "model.layers.0.mlp.up_proj.weight";

TEST(OffloadStates, an_update_runs_slice_by_slice_over_what_it_fetches) {
  for (const int64_t prefetch : {0, 1}) {
    const Graph update = offloaded(update_of({}), choice_of(&OffloadChoice::states, Space::disk, prefetch));
    expect_waits_guard_copies(update);
    const auto slices = updates_of(update, kUp);
    ASSERT_EQ(slices.size(), 2U);
    EXPECT_EQ(slices[1]->attr_int("first"), 65536);
    EXPECT_EQ(slices[1]->attr_int("elements"), 98304 - 65536);
    EXPECT_EQ(update.tensor(slices[1]->outputs[operand::adamw::weight]).name, kUp)
        << "the weight is on the device";
    EXPECT_EQ(update.tensor(slices[1]->outputs[operand::adamw::m]).bytes(), 4 * (98304 - 65536));
    EXPECT_EQ(counts_of(update, OpKind::store)[kUp + std::string(".exp_avg")], 2);
    EXPECT_EQ(updates_of(update, "model.norm.weight").size(), 1U);
    EXPECT_FALSE(updates_of(update, "model.norm.weight")[0]->attrs.contains("first"));
  }
}

TEST(OffloadStates, the_next_slice_comes_while_one_computes) {
  const Graph update = offloaded(update_of({}), choice_of(&OffloadChoice::states));
  const auto position = [&](const Op* op) { return static_cast<size_t>(op - update.ops().data()); };
  const auto slices = updates_of(update, kUp);
  for (const size_t at : find_ops(update, OpKind::fetch)) {
    const Op& op = op_at(update, at);
    if (op.scope == kUp && op.attr_int("first") > 0) {
      EXPECT_LT(at, position(slices[0]));
    }
  }
}

TEST(OffloadStates, a_weight_with_a_master_copy_is_stored_but_not_fetched) {
  OffloadChoice choice = choice_of(&OffloadChoice::states);
  choice.weights = Space::disk;
  const Graph update =
      offloaded(update_of({DType::bf16, DType::f32, DType::f32, true, false}, DType::bf16), choice);
  expect_waits_guard_copies(update);
  EXPECT_EQ(counts_of(update, OpKind::store)[kUp], 2);
  EXPECT_FALSE(counts_of(update, OpKind::fetch).contains(kUp));
  EXPECT_EQ(counts_of(update, OpKind::fetch)[kUp + std::string(".master")], 2);
}

// An update in fp16 may be skipped: what it then leaves unwritten has to be stored as it was.
TEST(OffloadStates, a_weight_that_a_skipped_step_leaves_unwritten_is_fetched) {
  const TrainPrecision fp16{DType::f16, DType::f32, DType::f32, true, false};
  for (const OptimizerTraits& optimizer : kOptimizers) {
    OffloadChoice choice = choice_of(&OffloadChoice::weights);
    const Graph update = offloaded(build_update(full(1, DType::f16), fp16, {.kind = optimizer.kind}), choice);
    expect_waits_guard_copies(update);
    EXPECT_EQ(counts_of(update, OpKind::fetch)[kUp], counts_of(update, OpKind::store)[kUp]) << optimizer.name;
    EXPECT_GT(counts_of(update, OpKind::fetch)[kUp], 0) << optimizer.name;
  }
}

// `fetched`: whether the copy of the weight is, that the update writes.
std::string update_text(const char* scaled, bool fetched) {
  const std::string fetch =
      "w.copy f16[64] = fetch(w) {elements=64, first=0} @w update\n"
      "w.copy f16[64] = fetch_wait(w.copy) @w update\n";
  return std::string(
             "graph update\n"
             "tensor step f64[16] input\n"
             "tensor grad_norm f64[2] metric\n"
             "tensor w f16[64] trainable disk\n"
             "tensor w.grad f32[64] gradient\n"
             "tensor w.exp_avg f32[64] state\n"
             "tensor w.master f32[64] master\n") +
         (fetched ? fetch : "") +
         "w.copy f16[64], w.exp_avg, w.master = lion(step, grad_norm, w.grad) {beta1=0.9, beta2=0.999" +
         scaled +
         ", stochastic=0, weight_decay=0.0} @w update\n"
         "w = store(w.copy) {first=0} @w update\n"
         "w.copy f16[64] = store_wait(w.copy) @w update\n";
}

TEST(OffloadStates, a_program_that_stores_what_a_skipped_step_leaves_unwritten_does_not_verify) {
  verify(parse_graph(update_text("", false)));
  verify(parse_graph(update_text(", scaled=1", true)));
  try {
    verify(parse_graph(update_text(", scaled=1", false)));
    FAIL() << "it verifies";
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("a skipped step leaves unwritten"));
  }
}

// A matrix of 8 Mi elements and no more than one layer of them.
Graph update_of_large(OptimizerKind kind) {
  ModelSpec spec = model(1);
  spec.hidden = 2048;
  spec.mlp_width = 4096;
  const Graph loss = build_loss(spec, {kTokens, 1, kTokens}, DType::f32, 64, Mode::train, "loss");
  return build_update(differentiate(make_trainable(loss), {}), {}, {.kind = kind});
}

TEST(OffloadStates, scales_of_8_bit_states_are_sliced_in_step_with_their_codes) {
  OffloadChoice choice = choice_of(&OffloadChoice::states);
  choice.slice_elements = 5 * (int64_t{1} << 20);
  const Graph update = offloaded(update_of_large(OptimizerKind::adamw8bit), choice);
  std::map<std::string, std::vector<std::pair<int64_t, int64_t>>> ranges;
  for (const size_t at : find_ops(update, OpKind::fetch)) {
    const Op& op = op_at(update, at);
    ranges[offloaded_of(update, op)].emplace_back(op.attr_int("first"), op.attr_int("elements"));
  }
  const int64_t mi = int64_t{1} << 20;
  EXPECT_THAT(ranges[kUp + std::string(".exp_avg")],
              ElementsAre(std::pair{int64_t{0}, 5 * mi}, std::pair{5 * mi, 3 * mi}));
  EXPECT_THAT(ranges[kUp + std::string(".exp_avg_scale")],
              ElementsAre(std::pair{int64_t{0}, 5 * mi / 256}, std::pair{5 * mi / 256, 3 * mi / 256}));
}

TEST(OffloadStates, an_optimizer_that_needs_the_whole_matrix_gets_it) {
  OffloadChoice choice = choice_of(&OffloadChoice::gradients);
  const Graph update = offloaded(update_of_large(OptimizerKind::adafactor), choice);
  EXPECT_EQ(counts_of(update, OpKind::fetch)[kUp + std::string(".grad")], 1);
}

TEST(OffloadStates, slices_begin_at_multiples_of_what_blocks_and_random_bits_need) {
  OffloadChoice choice = choice_of(&OffloadChoice::states);
  choice.slice_elements = 1000;
  EXPECT_THROW(offloaded(update_of({}), choice), InternalError);
}

TEST(Offload, where_the_device_reaches_the_host_tensors_move_but_no_op_changes) {
  const Graph train = full(2);
  const std::vector<Graph> plain = {train, build_update(train, {}, {})};
  OffloadChoice choice = choice_of(&OffloadChoice::states, Space::host);
  choice.gradients = choice.weights = choice.activations = Space::host;
  const auto programs = offload(plain, choice, {.reaches_host = true});
  for (size_t i = 0; i < programs.size(); ++i) {
    EXPECT_EQ(programs[i].ops().size(), plain[i].ops().size());
    EXPECT_EQ(programs[i].tensor(programs[i].find(kUp)).space, Space::host);
  }
  EXPECT_EQ(programs[1].tensor(programs[1].find(kUp + std::string(".exp_avg"))).space, Space::host);
  EXPECT_THAT(find_ops(offload(plain, choice, {.reaches_host = false})[0], OpKind::fetch), Not(IsEmpty()));
}

TEST(Offload, all_parts_together_make_programs_that_verify) {
  for (const int64_t accumulation : {1, 3}) {
    for (const int64_t prefetch : {0, 1, 3}) {
      const Graph train = recompute(full(3), {std::vector(3, RecomputePoint::block), 2});
      OffloadChoice choice = choice_of(&OffloadChoice::states, Space::disk, prefetch);
      choice.gradients = choice.weights = choice.activations = Space::disk;
      for (const Graph& program : offload({train, build_update(train, {}, {}), forward(3)}, choice,
                                          {.accumulation = accumulation})) {
        verify(program);
        expect_waits_guard_copies(program);
        for (const Tensor& tensor : program.tensors())
          EXPECT_FALSE(tensor.role == Role::optimizer_state && choice.moves(tensor) &&
                       tensor.space == Space::device)
              << tensor.name;
      }
    }
  }
}

}  // namespace
}  // namespace plimsoll
