// The search against brute force: every variant of its space is built and laid out, and a budget's best is
// looked up among them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>

#include "base/test_slice.h"
#include "models/test_specs.h"
#include "plan/search/search.h"

namespace plimsoll {
namespace {

enum class Method : uint8_t { full, unclipped, lora, qlora };
enum class Family : uint8_t { decoder, t5, gla, encoder, hybrid };

// Large: building so many variants takes half a minute under sanitizers. Longest: for `make oracle` alone.
enum class Effort : uint8_t { usual, large, longest };

// So many devices divide their states, or more than these.
struct Devices : Sharding {
  NodeCopy copy = {};  // of frozen weights
};
Devices by(int64_t ranks, ShardStage stage = ShardStage::states, NodeCopy copy = {}) {
  return {{ranks, stage}, copy};
}

struct Case {
  const char* name;
  Method method = Method::full;
  int64_t layers = 2;
  int64_t effective = 2;
  std::optional<int64_t> micro = {};
  std::vector<Space> targets = {};
  bool own_memory = false;  // of the device: what lives on the host is copied
  double disk = 1;          // times the reference's rates
  int64_t length = 48;
  int budgets = 300;
  Family family = Family::decoder;
  Task task = Task::sft;
  bool launches = false;  // a host launches calls, and they may be captured
  bool lengths = false;   // rows of many lengths
  bool in_part = false;   // parts may have several offload targets each, and transfers start sooner or later
  std::optional<RecomputePoint> recompute = {};  // of all layers
  size_t number = 0;                             // of the grid's cell: a landing runs a third of them
  Devices cut = {};                              // several
  std::optional<OffloadParts> offload = {};      // that are stated
  Effort effort = Effort::usual;
};

ModelSpec model_of(const Case& c) {
  constexpr int64_t kVocab = 600;
  switch (c.family) {
    case Family::decoder:
      return test_spec({.hidden = 128, .mlp = 320, .layers = c.layers, .vocab = kVocab});
    case Family::t5:
      return parse_model_spec({{"model_type", "t5"},
                               {"vocab_size", kVocab},
                               {"d_model", 64},
                               {"d_ff", 160},
                               {"num_heads", 4},
                               {"d_kv", 16},
                               {"num_layers", c.layers},
                               {"num_decoder_layers", c.layers}},
                              "test");
    case Family::gla:
      return parse_model_spec({{"model_type", "gla"},
                               {"vocab_size", kVocab},
                               {"hidden_size", 64},
                               {"num_heads", 2},
                               {"num_hidden_layers", c.layers}},
                              "test");
    case Family::encoder:
      return parse_model_spec({{"model_type", "bert"},
                               {"vocab_size", kVocab},
                               {"hidden_size", 64},
                               {"intermediate_size", 160},
                               {"num_attention_heads", 4},
                               {"num_hidden_layers", c.layers}},
                              "test");
    case Family::hybrid:  // every fourth layer has attention, the others a delta rule
      return parse_model_spec({{"model_type", "qwen3_5_text"},
                               {"vocab_size", kVocab},
                               {"hidden_size", 64},
                               {"intermediate_size", 160},
                               {"num_hidden_layers", c.layers},
                               {"num_attention_heads", 4},
                               {"num_key_value_heads", 2},
                               {"head_dim", 16},
                               {"linear_num_key_heads", 2},
                               {"linear_num_value_heads", 4},
                               {"linear_key_head_dim", 16},
                               {"linear_value_head_dim", 16},
                               {"linear_conv_kernel_dim", 4},
                               {"full_attention_interval", 4},
                               {"tie_word_embeddings", true}},
                              "test");
  }
  return {};
}

// Half of the rows are short, the others of every length.
RunSteps rows_of_many_lengths(const Case& c) {
  RunSteps run;
  run.steps = 10;
  std::vector<RowSize> sizes;
  for (int64_t i = 0; i < 64; ++i) {
    const int64_t tokens = i % 2 == 0 ? c.length / 6 : 1 + (i * 7) % c.length;
    sizes.push_back({.tokens = tokens, .targets = tokens});
    run.row_length += static_cast<double>(tokens) / 64;
  }
  run.rows = static_cast<double>(c.effective);
  run.tokens = run.targets = run.rows * run.row_length;
  run.sizes = std::make_shared<const std::vector<RowSize>>(sizes);
  return run;
}

PlanRequest request_for(const Case& c) {
  PlanRequest request;
  Experiment& experiment = request.workload.experiment;
  experiment.model = model_of(c);
  experiment.task.task = c.task;
  if (c.task == Task::dpo && !(c.method == Method::lora || c.method == Method::qlora))
    experiment.task.preference.reference = Preference::Reference::given;
  if (c.family == Family::t5) experiment.target_length = c.length / 2;
  experiment.lora = c.method == Method::lora || c.method == Method::qlora;
  experiment.quantised = c.method == Method::qlora;
  experiment.precision = {DType::bf16, DType::f32, DType::f32, false, true};
  experiment.optimizer.max_grad_norm = c.method == Method::unclipped ? 0.0 : 1.0;
  experiment.max_length = c.length;
  experiment.effective_batch = c.effective;
  experiment.ranks = c.cut.ranks;
  experiment.optimizer.shard = c.cut.stage;
  experiment.evaluates = c.method == Method::full;
  request.choices.micro_batch = c.micro;
  request.target.targets = c.targets;
  request.choices.in_part = c.in_part;
  request.choices.recompute = c.recompute;
  request.choices.offload = c.offload;
  if (!c.in_part) request.choices.prefetch = 1;
  request.target.device = reference_description();
  request.target.device.reaches_host = !c.own_memory;
  request.target.device.rates.disk_read *= c.disk;
  request.target.device.rates.disk_write *= c.disk;
  // Ops of this size would all take the overhead of one.
  request.target.device.rates.op_overhead = 1e-9;
  request.target.own_memory = c.own_memory;
  request.target.layout.node_copy = c.cut.copy;
  if (c.launches) {
    request.target.device.backend = Backend::gpu;
    request.target.device.launch_seconds = 2e-6;
    request.target.device.graph_node = {.bytes = 512, .uncertain = 0};
  }
  if (c.lengths) request.workload.run = rows_of_many_lengths(c);
  // The process without a variant takes more than most variants, and decides no tie.
  request.target.host.components = {{"process", 64 << 20}};
  return request;
}

// All variants as they are when they are laid out.
class Oracle {
 public:
  explicit Oracle(const PlanRequest& request) : request_(request) {
    for (const Variant& variant : Search(request).all()) {
      for (const bool graphs : {false, true}) {
        if (graphs && request.target.device.backend != Backend::gpu) continue;
        PlanRequest with = request;
        with.choices.graphs = graphs ? UseGraphs::automatic : UseGraphs::off;
        Candidate candidate = candidate_of(plan_variant(with, variant));
        candidate.graphs = graphs;
        all_.push_back(candidate);
      }
    }
  }

  [[nodiscard]] const std::vector<Candidate>& all() const { return all_; }
  [[nodiscard]] Candidate find(const Candidate& candidate) const {
    for (const Candidate& c : all_)
      if (c.variant == candidate.variant && c.graphs == candidate.graphs) return c;
    ADD_FAILURE() << "not in the space: " << variant_words(request_.workload.experiment, candidate.variant);
    return {};
  }
  [[nodiscard]] std::vector<const Candidate*> fitting(const Budget& budget) const {
    std::vector<const Candidate*> found;
    for (const Candidate& c : all_)
      if (within(c, budget, request_.target.host)) found.push_back(&c);
    return found;
  }

 private:
  const PlanRequest& request_;
  std::vector<Candidate> all_;
};

// PLIMSOLL_ORACLE_SEED draws other budgets than those that tests always have.
unsigned seed_of_budgets() {
  const char* seed = std::getenv("PLIMSOLL_ORACLE_SEED");
  return seed == nullptr ? 12U : static_cast<unsigned>(std::stoul(seed));
}

// Budgets from where nothing fits to where everything does, of every kind of limit.
class Budgets {
 public:
  Budgets(const PlanRequest& request, const Oracle& oracle) : request_(request), all_(oracle.all()) {}

  Budget next() {
    Budget budget;
    const int64_t host = request_.target.host.total();
    const unsigned kinds = static_cast<unsigned>(random_()) % 8;
    if (kinds < 6)
      budget.device_bytes = near([](const Candidate& c) { return c.arena_bytes + c.graph_bytes; });
    if (kinds >= 5)
      budget.process_bytes = near([&](const Candidate& c) { return c.arena_bytes + c.host_bytes + host; });
    if (kinds % 3 == 1) budget.host_bytes = near([&](const Candidate& c) { return c.host_bytes + host; });
    if (kinds % 2 == 1) budget.disk_bytes = near([](const Candidate& c) { return c.disk_bytes; });
    return budget;
  }

 private:
  template <class Bytes>
  int64_t near(const Bytes& bytes) {
    std::vector<int64_t> values;
    for (const Candidate& c : all_) values.push_back(bytes(c));
    std::sort(values.begin(), values.end());
    // Half of them among the smallest fifth, where it matters.
    const size_t range = random_() % 2 == 0 ? values.size() : 1 + values.size() / 5;
    const int64_t value = values[random_() % range];
    return value + static_cast<int64_t>(random_() % 3) * 512 - 512;
  }

  const PlanRequest& request_;
  const std::vector<Candidate>& all_;
  std::mt19937 random_{seed_of_budgets()};
};

// Less of the memories by so much.
Budget with_spare(Budget budget, double share) {
  for (auto* limit : {&budget.device_bytes, &budget.process_bytes, &budget.host_bytes, &budget.disk_bytes})
    if (*limit) *limit = static_cast<int64_t>(static_cast<double>(**limit) * (1 - share));
  return budget;
}

// `make oracle` asks for every case, and for more budgets.
std::optional<int> times_as_many() {
  const char* times = std::getenv("PLIMSOLL_ORACLE_TIMES");
  return times == nullptr ? std::nullopt : std::optional(std::stoi(times));
}

class EveryBudget : public ::testing::TestWithParam<Case> {};

// The reported smallest plan is the least of all that keep the other limits, and of those the fastest.
void expect_smallest(Search& search, const Budget& budget, const PlanRequest& request, const Oracle& oracle,
                     const Search::LayOut& lay_out, double tolerance) {
  Budget others = budget;
  others.device_bytes.reset();
  others.process_bytes.reset();
  const auto fitting = oracle.fitting(others);
  if (fitting.empty()) return;
  const bool together = !request.target.own_memory && !budget.device_bytes && budget.process_bytes;
  const auto bytes = [&](const Candidate& c) {
    return static_cast<double>(c.arena_bytes + c.graph_bytes + (together ? c.host_bytes : 0));
  };
  const Candidate* least = *std::min_element(
      fitting.begin(), fitting.end(), [&](const auto* a, const auto* b) { return bytes(*a) < bytes(*b); });
  const Candidate smallest = search.smallest(budget, lay_out);
  ASSERT_TRUE(within(smallest, others, request.target.host));
  ASSERT_LE(bytes(smallest), (1 + tolerance) * bytes(*least))
      << variant_words(request.workload.experiment, smallest.variant) << " instead of "
      << variant_words(request.workload.experiment, least->variant);
  if (tolerance > 0) return;  // deep models are known by estimates
  for (const Candidate* other : fitting) {
    const bool takes_no_more = bytes(*other) <= bytes(smallest);
    ASSERT_FALSE(takes_no_more && other->seconds_per_step < (1 - 1e-9) * smallest.seconds_per_step)
        << variant_words(request.workload.experiment, smallest.variant) << ", as small and slower than "
        << variant_words(request.workload.experiment, other->variant);
  }
}

// Frames are left out by what none of their variants goes below.
void expect_floors_below_all(Search& search, const PlanRequest& request, const Oracle& oracle) {
  int moved = 0;
  for (const Candidate& candidate : oracle.all()) {
    const auto floor = search.floor_of(candidate.variant);
    ASSERT_TRUE(floor) << variant_words(request.workload.experiment, candidate.variant);
    ASSERT_LE(floor->device, candidate.arena_bytes)
        << variant_words(request.workload.experiment, candidate.variant);
    ASSERT_LE(floor->host, candidate.host_bytes)
        << variant_words(request.workload.experiment, candidate.variant);
    const auto least = search.least_of(candidate.variant);
    ASSERT_TRUE(least);
    ASSERT_LE(least->disk, candidate.disk_bytes);
    ASSERT_LE(least->disk_traffic, candidate.disk_traffic)
        << variant_words(request.workload.experiment, candidate.variant);
    ASSERT_LE(least->seconds, candidate.seconds_per_step)
        << variant_words(request.workload.experiment, candidate.variant);
    moved += candidate.variant.offload.activations != Space::device ? 1 : 0;
  }
  EXPECT_EQ(moved > 0, !request.target.targets.empty());
}

// Full fine-tuning on a card with a host and a disk, of which any number of layers may use.
PlanRequest request_in_part(int64_t layers, RecomputePoint recompute, Family family = Family::decoder) {
  return request_for(Case{.name = "in_part",
                          .layers = layers,
                          .effective = 1,
                          .targets = {Space::host, Space::disk},
                          .own_memory = true,
                          .disk = 0.3,
                          .family = family,
                          .in_part = true,
                          .recompute = recompute});
}

// The plan with these offload targets of states, and of activations.
Candidate with_targets(PlanRequest request, const PartTarget& states, const PartTarget& activations = {}) {
  request.choices.targets = OffloadTargets{};
  (*request.choices.targets)[static_cast<size_t>(Part::states)] = states;
  (*request.choices.targets)[static_cast<size_t>(Part::activations)] = activations;
  return make_plan(request).smallest;
}

// An update copies more of the embedding's states than of a layer's; where only some layers' states move, the embedding's stay.
TEST(LeastMemory, of_states_in_part_has_no_copies_of_those_that_stay) {
  PlanRequest request = request_in_part(8, RecomputePoint::block);
  const Candidate in_part = with_targets(request, {5, 1});
  // A device as if without room; host and disk have room for that and less than a layer more.
  constexpr int64_t kOfLayer = 700000, kLittle = 100000;
  Budget& budget = request.target.budget;
  budget.device_bytes = in_part.arena_bytes / 2;
  budget.host_bytes = request.target.host.total() + in_part.host_bytes + kOfLayer;
  budget.disk_bytes = in_part.disk_bytes + kLittle;
  EXPECT_LE(make_plan(request).smallest.arena_bytes, in_part.arena_bytes);
}

// Estimates say that a layer more may move than the host has room for programs of: its layout misses, and the next one fits.
TEST(LeastMemory, is_found_behind_a_layout_with_larger_programs_than_the_host_takes) {
  PlanRequest request = request_in_part(8, RecomputePoint::block);
  const Candidate five = with_targets(request, {5, 0}), six = with_targets(request, {6, 0});
  constexpr int64_t kLittle = 4096;
  request.target.budget.device_bytes = five.arena_bytes / 2;
  request.target.budget.host_bytes = request.target.host.total() + six.host_bytes - kLittle;
  EXPECT_LE(make_plan(request).smallest.arena_bytes, five.arena_bytes);
}

// With activations on the host, states have less of it than where activations stay: more of their layers are on disk.
TEST(PartsInPart, are_found_where_activations_take_their_host) {
  for (const int64_t on_disk : {1, 3}) {
    PlanRequest request = request_in_part(4, RecomputePoint::none);
    const Candidate one = with_targets(request, {on_disk, PartTarget::kEveryBlock}, Space::host);
    Budget& budget = request.target.budget;
    budget.device_bytes = one.arena_bytes;
    budget.host_bytes = request.target.host.total() + one.host_bytes;
    budget.disk_bytes = one.disk_bytes;
    EXPECT_TRUE(make_plan(request).fits()) << on_disk << " layers on disk";
  }
}

// A device that has room for some layers' states gets them, in models that are measured layer by layer too.
TEST(PartsInPart, are_found_in_models_whose_layers_differ_and_in_those_of_few) {
  EXPECT_TRUE(Choices{}.in_part);
  using Model = std::pair<Family, int64_t>;
  for (const auto& [family, layers] :
       {Model(Family::hybrid, 8), Model(Family::hybrid, 4), Model(Family::t5, 2)}) {
    PlanRequest request = request_in_part(layers, RecomputePoint::none, family);
    const Candidate some = with_targets(request, {0, layers / 2});
    Budget& budget = request.target.budget;
    budget.device_bytes = some.arena_bytes;
    budget.host_bytes = request.target.host.total() + some.host_bytes;
    budget.disk_bytes = 0;
    const Plan plan = make_plan(request);
    ASSERT_TRUE(plan.fits()) << layers;
    EXPECT_LE(plan.seconds_per_step, 1.01 * some.seconds_per_step) << layers;
  }
}

TEST_P(EveryBudget, gets_the_best_variant_that_there_is) {
#ifdef __SANITIZE_ADDRESS__
  if (GetParam().layers >= 5 || GetParam().effort == Effort::large)
    GTEST_SKIP()
        << "half a minute to a quarter of an hour under sanitizers; the other cases are of every family";
#endif
  if (!test::in_slice("every_budget", GetParam().number)) GTEST_SKIP() << "in another landing's slice";
  if (GetParam().effort == Effort::longest && !times_as_many())
    GTEST_SKIP() << "thousands of layouts: `make oracle` runs it";
  PlanRequest request = request_for(GetParam());
  const int kBudgets = GetParam().budgets * times_as_many().value_or(1);
  // Deep models are known by a few of their layers, to half a percent where tensors are as small as here.
  const bool deep = is_deep(request.workload.experiment);
  const double tolerance = deep ? 0.005 : 0.0;
  const Oracle oracle(request);
  ASSERT_GT(oracle.all().size(), 100U);
  Search search(request);
  ASSERT_NO_FATAL_FAILURE(expect_floors_below_all(search, request, oracle));
  const auto lay_out = [&](const Candidate& c) { return oracle.find(c); };
  Budgets budgets(request, oracle);
  const auto rank = [](const Candidate& c) {
    return std::pair(c.disk_traffic, c.arena_bytes + c.graph_bytes + c.host_bytes);
  };
  int refused = 0;
  int tied = 0;
  for (int i = 0; i < kBudgets; ++i) {
    const Budget budget = budgets.next();
    const std::string what = "budget " + std::to_string(i) + ": device " +
                             std::to_string(budget.device_bytes.value_or(-1)) + ", host " +
                             std::to_string(budget.host_bytes.value_or(-1)) + ", disk " +
                             std::to_string(budget.disk_bytes.value_or(-1)) + ", process " +
                             std::to_string(budget.process_bytes.value_or(-1));
    const auto fitting = oracle.fitting(with_spare(budget, tolerance));
    request.choices.tie = 0;
    const auto fastest = search.fastest(budget, lay_out);
    ASSERT_TRUE(fastest || fitting.empty()) << what;
    ASSERT_TRUE(!fastest || !oracle.fitting(budget).empty()) << what;
    if (i % 5 == 0) {
      ASSERT_NO_FATAL_FAILURE(expect_smallest(search, budget, request, oracle, lay_out, tolerance)) << what;
    }
    if (fitting.empty() || !fastest) {
      ++refused;
      continue;
    }
    ASSERT_TRUE(within(*fastest, budget, request.target.host)) << what;
    const Candidate* best = *std::min_element(
        fitting.begin(), fitting.end(),
        [](const auto* a, const auto* b) { return a->seconds_per_step < b->seconds_per_step; });
    ASSERT_LE(fastest->seconds_per_step, 1.01 * best->seconds_per_step)
        << what << ", taken " << variant_words(request.workload.experiment, fastest->variant) << ", best "
        << variant_words(request.workload.experiment, best->variant);
    request.choices.tie = 0.01;
    const auto preferred = search.fastest(budget, lay_out);
    ASSERT_TRUE(preferred) << what;
    ASSERT_LE(preferred->seconds_per_step, 1.01 * 1.01 * best->seconds_per_step) << what;
    tied += rank(*preferred) < rank(*fastest) ? 1 : 0;
    ASSERT_LE(rank(*preferred).first, rank(*fastest).first) << what;
    // The rank knows nothing of a GPU's host, and a tie is a share of the seconds without what devices send each other.
    if (deep || std::ranges::count(request.target.targets, Space::host) > 0 ||
        request.workload.experiment.ranks > 1)
      continue;
    const Candidate* least = &*fastest;
    for (const Candidate* c : fitting)
      if (c->seconds_per_step < 1.01 * fastest->seconds_per_step && rank(*c) < rank(*least)) least = c;
    ASSERT_EQ(rank(*preferred).first, rank(*least).first) << what;
    ASSERT_LE(rank(*preferred).second, rank(*least).second + rank(*least).second / 200)
        << what << ", taken " << variant_words(request.workload.experiment, preferred->variant) << ", least "
        << variant_words(request.workload.experiment, least->variant);
  }
  // The budgets say something.
  EXPECT_GT(refused, kBudgets / 100);
  EXPECT_LT(refused, kBudgets * 9 / 10);
  EXPECT_GT(tied, 0);
}

// Keys of the recipe state whatever the planner may choose: the space is that variant alone then.
TEST_P(EveryBudget, has_variants_that_keys_state_every_one) {
  if (!test::in_slice("every_budget", GetParam().number)) GTEST_SKIP() << "in another landing's slice";
  constexpr size_t kAtMost = 60;
  const PlanRequest request = request_for(GetParam());
  const std::vector<Variant> all = Search(request).all();
  const size_t step = times_as_many() ? 1 + all.size() / 1000 : 1 + all.size() / kAtMost;
  for (size_t i = 0; i < all.size(); i += step) {
    const Variant& variant = all[i];
    PlanRequest stated = request;
    stated.choices.micro_batch = variant.micro_batch;
    if (variant.micro_tokens > 0) stated.choices.micro_tokens = variant.micro_tokens;
    stated.choices.loss_chunk = variant.loss_chunk;
    stated.choices.recompute = levels_of(variant.recompute);
    ASSERT_TRUE(stated.choices.recompute) << variant_words(request.workload.experiment, variant);
    stated.choices.targets = variant.offload.targets();
    if (variant.offload.any()) stated.choices.prefetch = variant.offload.prefetch;
    const std::vector<Variant> left = Search(stated).all();
    ASSERT_EQ(left.size(), 1U) << variant_words(request.workload.experiment, variant);
    ASSERT_EQ(left.front(), variant) << variant_words(request.workload.experiment, variant);
  }
}

std::vector<Case> numbered(std::vector<Case> cases) {
  for (size_t i = 0; i < cases.size(); ++i) cases[i].number = i;
  return cases;
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, EveryBudget,
    ::testing::ValuesIn(numbered(
        {Case{.name = "full_with_disk", .targets = {Space::disk}},
         Case{.name = "full_with_slow_disk",
              .effective = 4,
              .micro = 2,
              .targets = {Space::disk},
              .disk = 0.05},
         Case{.name = "full_on_a_card",
              .micro = 1,
              .targets = {Space::host, Space::disk},
              .own_memory = true,
              .disk = 0.3},
         Case{.name = "homes_of_full",
              .micro = 1,
              .targets = {Space::host, Space::disk},
              .own_memory = true,
              .disk = 0.3,
              .in_part = true,
              .recompute = RecomputePoint::none},
         Case{.name = "homes_of_full_recomputed",
              .layers = 3,
              .micro = 1,
              .targets = {Space::disk},
              .disk = 0.2,
              .in_part = true,
              .recompute = RecomputePoint::block},
         Case{.name = "homes_of_lora",
              .method = Method::lora,
              .layers = 3,
              .micro = 2,
              .targets = {Space::host},
              .own_memory = true,
              .length = 96,
              .in_part = true,
              .recompute = RecomputePoint::none},
         Case{.name = "deep_homes_of_full",
              .layers = 8,
              .effective = 1,
              .targets = {Space::host, Space::disk},
              .own_memory = true,
              .disk = 0.3,
              .budgets = 150,
              .in_part = true,
              .recompute = RecomputePoint::block,
              .effort = Effort::longest},
         Case{.name = "homes_of_t5",
              .layers = 2,
              .micro = 1,
              .targets = {Space::disk},
              .disk = 0.2,
              .budgets = 150,
              .family = Family::t5,
              .in_part = true,
              .recompute = RecomputePoint::block},
         Case{.name = "homes_of_hybrid",
              .layers = 8,
              .effective = 2,
              .targets = {Space::host},
              .own_memory = true,
              .budgets = 150,
              .family = Family::hybrid,
              .in_part = true,
              .recompute = RecomputePoint::none,
              .effort = Effort::large},
         Case{.name = "full_updated_in_backward",
              .method = Method::unclipped,
              .targets = {Space::disk},
              .disk = 10,
              .effort = Effort::large},
         Case{.name = "lora_with_disk",
              .method = Method::lora,
              .targets = {Space::disk},
              .effort = Effort::large},
         Case{.name = "lora_without", .method = Method::lora, .layers = 5, .effective = 6},
         Case{.name = "qlora_on_a_card",
              .method = Method::qlora,
              .targets = {Space::host},
              .own_memory = true,
              .effort = Effort::large},
         Case{.name = "t5_lora_with_disk",
              .method = Method::lora,
              .targets = {Space::disk},
              .budgets = 150,
              .family = Family::t5},
         Case{.name = "gla_on_a_card",
              .micro = 1,
              .targets = {Space::host},
              .own_memory = true,
              .budgets = 150,
              .family = Family::gla},
         Case{.name = "encoder_classifies",
              .method = Method::lora,
              .targets = {Space::disk},
              .budgets = 150,
              .family = Family::encoder,
              .task = Task::classify},
         Case{.name = "reward_of_a_decoder",
              .method = Method::lora,
              .targets = {Space::disk},
              .budgets = 150,
              .task = Task::reward},
         Case{.name = "dpo_of_a_decoder",
              .method = Method::lora,
              .micro = 1,
              .targets = {Space::disk},
              .length = 24,
              .budgets = 150,
              .task = Task::dpo},
         Case{.name = "launches_on_a_card",
              .effective = 6,
              .own_memory = true,
              .length = 24,
              .budgets = 200,
              .launches = true},
         Case{.name = "launches_beside_offload",
              .method = Method::lora,
              .targets = {Space::host},
              .own_memory = true,
              .length = 24,
              .budgets = 200,
              .launches = true,
              .effort = Effort::large},
         Case{.name = "rows_of_many_lengths",
              .method = Method::lora,
              .effective = 8,
              .targets = {Space::disk},
              .length = 96,
              .budgets = 150,
              .lengths = true,
              .effort = Effort::large},
         Case{.name = "deep_gla_full_with_disk",
              .layers = 7,
              .effective = 1,
              .targets = {Space::disk},
              .length = 32,
              .budgets = 100,
              .family = Family::gla},
         Case{.name = "deep_full_with_disk",
              .layers = 8,
              .effective = 1,
              .targets = {Space::disk},
              .length = 96,
              .budgets = 100,
              .effort = Effort::longest},
         Case{.name = "deep_lora",
              .method = Method::lora,
              .layers = 9,
              .micro = 1,
              .targets = {Space::disk},
              .length = 16,
              .budgets = 100},
         // Mixtures of two points are all that lies between them where the other parts stay.
         Case{.name = "deep_activations_away",
              .method = Method::lora,
              .layers = 8,
              .effective = 1,
              .targets = {Space::disk},
              .length = 96,
              .budgets = 100,
              .offload = OffloadParts{.activations = true}},
         Case{.name = "full_on_three_devices", .layers = 4, .effective = 12, .budgets = 150, .cut = by(3)},
         Case{.name = "whole_states_on_two_devices",
              .layers = 3,
              .effective = 8,
              .budgets = 100,
              .cut = by(2, ShardStage::none)},
         Case{.name = "t5_gradients_on_three_devices",
              .effective = 12,
              .budgets = 100,
              .family = Family::t5,
              .cut = by(3, ShardStage::gradients)},
         Case{.name = "qlora_weights_on_three_devices",
              .method = Method::qlora,
              .layers = 5,
              .effective = 12,
              .budgets = 50,
              .cut = by(3, ShardStage::weights)},
         Case{.name = "gradients_on_two_devices_with_disk",
              .layers = 3,
              .effective = 8,
              .targets = {Space::disk},
              .budgets = 100,
              .cut = by(2, ShardStage::gradients)},
         Case{.name = "weights_on_two_devices_with_disk",
              .layers = 3,
              .effective = 8,
              .targets = {Space::disk},
              .budgets = 50,
              .cut = by(2, ShardStage::weights)},
         Case{.name = "lora_weights_on_two_devices",
              .method = Method::lora,
              .layers = 5,
              .effective = 12,
              .budgets = 50,
              .cut = by(2, ShardStage::weights)},
         Case{.name = "unclipped_on_two_devices_with_disk",
              .method = Method::unclipped,
              .layers = 2,
              .effective = 4,
              .targets = {Space::disk},
              .budgets = 100,
              .cut = by(2)},
         Case{.name = "lora_on_two_devices",
              .method = Method::lora,
              .layers = 5,
              .effective = 12,
              .budgets = 150,
              .cut = by(2)},
         Case{.name = "homes_of_lora_on_two_cards_with_one_copy",
              .method = Method::lora,
              .layers = 3,
              .effective = 4,
              .micro = 2,
              .targets = {Space::host},
              .own_memory = true,
              .length = 96,
              .budgets = 150,
              .in_part = true,
              .recompute = RecomputePoint::none,
              .cut = by(2, ShardStage::states, {2, Space::host})}})),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace plimsoll
