// A model of two stacks of different kinds, built by hand: what passes and the depth model know of blocks is
// what the graph says of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "autodiff/autodiff.h"
#include "graph/op_kind.h"
#include "layout/program_layout.h"
#include "layout/test_bounds.h"
#include "ops/optimizer/optimizer.h"
#include "ops/rule.h"
#include "ops/step_values.h"
#include "ops/transfer.h"
#include "passes/pipeline.h"
#include "plan/search/depth_model.h"

namespace plimsoll {
namespace {

using enum RecomputePoint;

constexpr int64_t kTokens = 128, kHidden = 64, kVocab = 256;

struct Depth {
  int64_t encoder, decoder;
};

// Encoder blocks are an MLP over a norm. Decoder blocks attend, add what they read of the encoder's result,
// and have a wider MLP. No name has a part "layers".
class TwoStacks {
 public:
  explicit TwoStacks(Depth depth) {
    ids_ = input("ids", {kTokens}, DType::i32);
    labels_ = input("labels", {kTokens}, DType::i32);
    starts_ = input("starts", {2}, DType::i32);
    step_ = input(kStepTensor, {kNumStepValues}, DType::f64);
    table_ = weight("table", {kVocab, kHidden});
    const TensorId h = op(OpKind::embedding, {ids_, table_, step_}, {}, "embed", 1);
    TensorId e = h;
    for (int64_t i = 0; i < depth.encoder; ++i) e = encoder_block(e, "enc." + std::to_string(i));
    TensorId d = h;
    for (int64_t i = 0; i < depth.decoder; ++i) d = decoder_block(d, e, "dec." + std::to_string(i));
    const TensorId loss = graph_.add_tensor({"loss", {2}, DType::f64, Role::metric});
    Op head = make(OpKind::linear_cross_entropy, {norm(d, "last"), table_, labels_, step_},
                   {{"chunk", int64_t{32}}}, "head");
    head.outputs = {loss};
    emit(graph_, std::move(head), "");
  }

  Graph graph() { return std::move(graph_); }

 private:
  TensorId input(const char* name, Shape shape, DType dtype) {
    return graph_.add_tensor({name, std::move(shape), dtype, Role::input});
  }
  TensorId weight(const std::string& name, Shape shape) {
    return graph_.add_tensor(
        {name, std::move(shape), DType::f32, Role::frozen_weight, Space::device, block_});
  }
  Op make(OpKind kind, std::vector<TensorId> inputs, Attrs attrs, const std::string& scope) const {
    Op made;
    made.kind = kind;
    made.inputs = std::move(inputs);
    made.attrs = std::move(attrs);
    made.scope = scope;
    made.block = block_;
    return made;
  }
  TensorId op(OpKind kind, std::vector<TensorId> inputs, Attrs attrs, const std::string& scope,
              size_t outputs) {
    Op made = make(kind, std::move(inputs), std::move(attrs), scope);
    made.outputs.assign(outputs, kNewTensor);
    return emit(graph_, std::move(made), scope).front();
  }
  TensorId norm(TensorId x, const std::string& scope) {
    return op(OpKind::rms_norm, {x, weight(scope + ".weight", {kHidden})}, {{"eps", 1e-5}}, scope, 2);
  }
  TensorId linear(TensorId x, const std::string& scope, int64_t out) {
    const TensorId w = weight(scope + ".weight", {out, graph_.tensor(x).shape[1]});
    return op(OpKind::linear, {x, w, kNoTensor, kNoTensor, step_}, {{"scale", 1.0}}, scope, 1);
  }
  TensorId add(TensorId a, TensorId b, const std::string& scope) {
    return op(OpKind::add, {a, b}, {}, scope, 1);
  }
  TensorId mlp(TensorId h, const std::string& scope, int64_t width) {
    const TensorId n = norm(h, scope + ".norm");
    const TensorId gate = linear(n, scope + ".gate", width);
    const TensorId up = linear(n, scope + ".up", width);
    const TensorId act = op(OpKind::swiglu, {gate, up}, {}, scope + ".act", 1);
    return add(h, linear(act, scope + ".down", kHidden), scope + ".sum");
  }
  TensorId encoder_block(TensorId h, const std::string& scope) {
    block_ = graph_.add_block({scope, "encoder"});
    const TensorId result = mlp(h, scope + ".mlp", 128);
    block_ = kNoBlock;
    return result;
  }
  TensorId decoder_block(TensorId h, TensorId encoded, const std::string& scope) {
    block_ = graph_.add_block({scope, "decoder"});
    const TensorId n = norm(h, scope + ".norm");
    const TensorId q = linear(n, scope + ".q", kHidden);
    const TensorId k = linear(n, scope + ".k", kHidden);
    const TensorId v = linear(n, scope + ".v", kHidden);
    const Attrs attrs{{"head_dim", int64_t{32}}, {"window", int64_t{0}}, {"length", kTokens}};
    const TensorId o = op(OpKind::attention, {q, k, v, starts_, step_}, attrs, scope + ".attention", 2);
    const TensorId attended = add(h, linear(o, scope + ".o", kHidden), scope + ".attended");
    const TensorId read = linear(encoded, scope + ".read", kHidden);
    const TensorId result = mlp(add(attended, read, scope + ".crossed"), scope + ".mlp", 256);
    block_ = kNoBlock;
    return result;
  }

  Graph graph_{"loss"};
  BlockId block_ = kNoBlock;
  TensorId ids_, labels_, starts_, step_, table_;
};

Graph train_of(Depth depth) { return differentiate(make_trainable(TwoStacks(depth).graph()), {}); }

// Points of both stacks: the first blocks of each at one, the rest at another.
struct Points {
  RecomputePoint encoder_first, encoder_rest, decoder_first, decoder_rest;
};
RecomputeChoice choice_of(Depth depth, Depth first, const Points& points) {
  RecomputeChoice choice;
  for (int64_t i = 0; i < depth.encoder; ++i)
    choice.layers.push_back(i < first.encoder ? points.encoder_first : points.encoder_rest);
  for (int64_t i = 0; i < depth.decoder; ++i)
    choice.layers.push_back(i < first.decoder ? points.decoder_first : points.decoder_rest);
  return choice;
}

// "x.re" or "x.re.2"; "dec.0.read" is not one.
bool is_copy(const std::string& name) {
  const size_t at = name.rfind(".re");
  return at != std::string::npos && (at + 3 == name.size() || name[at + 3] == '.');
}

// The recomputed ops, by block.
std::map<BlockId, std::multiset<std::string>> repeated(const Graph& graph) {
  std::map<BlockId, std::multiset<std::string>> found;
  for (const Op& op : graph.ops())
    if (op.stage == Stage::backward && op.outputs.front() != kNoTensor &&
        is_copy(graph.tensor(op.outputs.front()).name))
      found[op.block].insert(std::string(to_string(op.kind)));
  return found;
}

TEST(TwoStacks, the_graph_names_its_blocks_and_survives_its_text) {
  const Graph train = train_of({3, 4});
  ASSERT_EQ(train.stacks().size(), 2U);
  EXPECT_EQ(train.stacks()[1].first, 3);
  EXPECT_EQ(train.stacks()[1].count, 4);
  EXPECT_EQ(train.blocks()[3].kind, "decoder");
  const std::string text = print_graph(train);
  const Graph again = parse_graph(text);
  EXPECT_EQ(print_graph(again), text);
  EXPECT_EQ(again.blocks(), train.blocks());
  for (const Tensor& tensor : train.tensors())
    EXPECT_EQ(again.tensor(again.find(tensor.name)).block, tensor.block) << tensor.name;
}

TEST(TwoStacks, gradients_weights_and_states_are_of_their_originals_blocks) {
  const Graph train = train_of({3, 4});
  const auto block_in = [](const Graph& graph, const std::string& name) {
    const TensorId id = graph.find(name);
    EXPECT_NE(id, kNoTensor) << name;
    return id == kNoTensor ? kNoBlock : graph.tensor(id).block;
  };
  EXPECT_EQ(block_in(train, "dec.2.mlp.up.weight"), 5);
  EXPECT_EQ(block_in(train, "dec.2.mlp.up.weight.grad"), 5);
  EXPECT_EQ(block_in(train, "table.grad"), kNoBlock);
  // Made by block 1, of what block 0 gave.
  EXPECT_EQ(block_in(train, "d_enc.0.mlp.sum"), 0);
  const Graph update = build_update(train, {}, {});
  EXPECT_EQ(update.blocks(), train.blocks());
  EXPECT_EQ(block_in(update, "enc.1.mlp.up.weight.exp_avg"), 1);
}

TEST(TwoStacks, each_block_drops_what_its_own_point_says) {
  const Graph train = train_of({3, 4});
  const Depth first{1, 2};
  const auto again = repeated(recompute(train, choice_of({3, 4}, first, {block, act, mlp, none})));
  EXPECT_THAT(again.at(0),
              ::testing::UnorderedElementsAre("rms_norm", "rms_norm", "linear", "linear", "swiglu"));
  EXPECT_THAT(again.at(1), ::testing::UnorderedElementsAre("swiglu"));
  EXPECT_THAT(again.at(2), ::testing::UnorderedElementsAre("swiglu"));
  // Behind the sum that follows the attention: what was read of the encoder, and the MLP.
  EXPECT_THAT(again.at(3), ::testing::IsSupersetOf({"linear", "linear", "linear", "swiglu", "add"}));
  EXPECT_EQ(again.at(3).count("attention"), 0U);
  EXPECT_EQ(again.count(5), 0U);
}

TEST(TwoStacks, a_segment_does_not_reach_into_the_next_stack) {
  const Graph train = train_of({3, 4});
  RecomputeChoice choice{std::vector(7, block), 2};
  verify(recompute(train, choice));
  // The third encoder block and the last two decoder blocks end their segments: what only a later block of
  // the segment needs is not made twice there.
  auto again = repeated(recompute(train, choice));
  EXPECT_GT(again.at(0).count("linear"), again.at(1).count("linear"));
  EXPECT_EQ(again.at(2).count("linear"), again.at(1).count("linear"));
  EXPECT_GT(again.at(3).count("linear"), again.at(4).count("linear"));
  EXPECT_EQ(again.at(4).count("linear"), again.at(6).count("linear"));
}

std::vector<Graph> programs_of(Depth depth, const RecomputeChoice& recompute, const OffloadChoice& offload,
                               const DeviceDescription& device) {
  PassContext context;
  context.device = &device;
  context.recompute = recompute;
  context.offload = offload;
  context.transfers = {true, 2};
  context.purpose = Purpose::train;
  Graph train = run_passes(TwoStacks(depth).graph(), context, kFirstPass, PassId::recompute);
  Graph update = build_update(train, context.precision, context.optimizer);
  std::vector<Graph> programs;
  programs.push_back(run_passes(std::move(train), context, PassId::update_in_backward));
  context.purpose = Purpose::update;
  programs.push_back(run_passes(std::move(update), context));
  return programs;
}

TEST(TwoStacks, weights_and_activations_of_both_go_to_the_disk) {
  const DeviceDescription device = reference_description();
  OffloadChoice offload;
  offload.weights = offload.activations = Space::disk;
  offload.smallest_bytes = 4096;
  const std::vector<Graph> programs = programs_of({3, 4}, {}, offload, device);
  validate(programs, lay_out(programs));
  std::map<BlockId, int> fetched;
  for (const Op& op : programs[0].ops())
    if (op.kind == OpKind::fetch && is_persistent(programs[0].tensor(offloaded_of(op)).role)) {
      EXPECT_EQ(programs[0].tensor(offloaded_of(op)).block, op.block);
      ++fetched[op.block];
    }
  // Three and eight matrices, in the forward and in the backward pass.
  for (BlockId id = 0; id < 7; ++id) EXPECT_EQ(fetched[id], id < 3 ? 6 : 16) << id;
  EXPECT_EQ(programs[0].tensor(programs[0].find("table")).space, Space::device);
}

// Both models in one: of few blocks, and of all.
TEST(TwoStacks, bytes_by_measured_depth_are_those_of_the_whole_model) {
  const DeviceDescription device = reference_description();
  const Depth few{kSampledFirst + kSampledRest, kSampledFirst + kSampledRest};
  const Depth all{9, 13};
  struct Case {
    Points points;
    Depth first;  // of `all`
  };
  const std::vector<Case> cases = {
      {{none, none, none, none}, all},       {{cheap, cheap, cheap, cheap}, all},
      {{block, block, block, block}, all},   {{block, block, mlp, cheap}, {9, 5}},
      {{attention, mlp, mlp, mlp}, {4, 13}}, {{act, none, block, attention}, {7, 2}}};
  const auto disk = Space::disk, on = Space::device;
  for (const OffloadChoice& parts :
       {OffloadChoice{}, OffloadChoice{on, on, disk, on}, OffloadChoice{on, on, on, disk},
        OffloadChoice{disk, disk, disk, disk}}) {
    OffloadChoice offload = parts;
    offload.smallest_bytes = 4096;
    offload.slice_elements = kSliceUnit;
    for (const auto& [points, first] : cases) {
      TimeModel time(device.rates);
      const auto measured = [&](Depth depth, Depth of, Samples samples) {
        KnownPrograms::Needs needs;
        double runs = 2;
        for (const Graph& program : programs_of(depth, choice_of(depth, of, points), offload, device)) {
          needs.push_back(
              std::make_shared<ProgramNeeds>(needs_of(program, runs, samples, {32}, device, time)));
          runs = 1;
        }
        return DepthModel(needs, 1);
      };
      const Usage real = measured(all, first, Samples::none).at(0);
      const Usage estimate =
          measured(few, {kSampledFirst, kSampledFirst}, Samples::mixture)
              .at(std::vector<StackDepth>{{all.encoder, first.encoder}, {all.decoder, first.decoder}}, 0);
      const auto programs = programs_of(all, choice_of(all, first, points), offload, device);
      const std::string what = std::string(to_string(points.encoder_first)) + " " +
                               std::string(to_string(points.decoder_first)) + ", weights on " +
                               std::string(to_string(offload.weights.of(0))) + ", activations on " +
                               std::string(to_string(offload.activations.of(0)));
      for (const Space space : kSpaces) {
        EXPECT_EQ(real.of(space), arena_lower_bound(programs, space)) << what;
        EXPECT_EQ(estimate.of(space), real.of(space)) << what << " in " << to_string(space);
      }
      EXPECT_EQ(estimate.ops, real.ops) << what;
      EXPECT_EQ(estimate.program_bytes, real.program_bytes) << what;
      EXPECT_EQ(estimate.disk_traffic, real.disk_traffic) << what;
      // At the end of a stack the queue that waits for the other changes.
      EXPECT_NEAR(estimate.seconds, real.seconds, 0.1 * real.seconds) << what;
    }
  }
}

}  // namespace
}  // namespace plimsoll
