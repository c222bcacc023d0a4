// The weights of tests/golden/nf4, which bitsandbytes quantised (tests/golden/make_golden.py).
#include "train/quantised_weights.h"
#include "graph/op_kind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cpu/describe.h"
#include "io/load.h"
#include "io/test_folder.h"
#include "ops/nf4.h"
#include "ops/rule.h"
#include "passes/train.h"
#include "runtime/device.h"
#include "runtime/executor.h"
#include "train/setup.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const fs::path kGolden = "tests/golden/nf4";
constexpr int64_t kOut = 160;
constexpr int64_t kIn = 128;

CpuSettings on_one_thread() { return cpu_settings({std::nullopt, 1}); }

// A program that multiplies by the weight `w.weight` [160, 128], and memory for it.
class OneWeight {
 public:
  explicit OneWeight(bool nested)
      : OneWeight(assign_scratch(quantise(linear(), {nested}), describe_cpu(on_one_thread().isa, 1))) {}

  [[nodiscard]] PersistentState state() const { return {layout_, memory_->data()}; }
  [[nodiscard]] Nf4Rows rows() const { return find_nf4(state(), *state().find("w.weight")).value(); }
  void load(const fs::path& folder, const std::string& stem) {
    std::vector<std::byte> staging(16384);  // the weight goes through it in ten parts
    load_nf4(state(), rows(), ModelFolder::open(folder, stem), staging);
  }
  // Bytes of a tensor of the state.
  [[nodiscard]] std::vector<std::byte> bytes(const std::string& name) const {
    const auto all = state().bytes(*state().find(name));
    return {all.begin(), all.end()};
  }
  std::vector<std::byte> dequantised() {
    const Executor program(programs_[0], layout_.programs[0], device_, *memory_);
    program.run();
    const auto id = static_cast<size_t>(programs_[0].find("w.weight.dequantized"));
    const TableRow& row = layout_.programs[0].rows[id];
    const std::byte* from = memory_->data() + row.offset;
    return {from, from + row.bytes};
  }

 private:
  explicit OneWeight(Graph graph)
      : programs_{std::move(graph)},
        layout_(lay_out(programs_, {.reuse = false})),
        device_(on_one_thread()),
        memory_(device_.map(layout_.arena_bytes())) {}

  static Graph linear() {
    Graph graph("one");
    const TensorId x = graph.add_tensor({"x", {1, kIn}, DType::bf16, Role::input});
    const TensorId w = graph.add_tensor({"w.weight", {kOut, kIn}, DType::bf16, Role::frozen_weight});
    Op op;
    op.kind = OpKind::linear;
    op.inputs = {x, w};
    op.outputs = {kNewTensor};
    op.attrs = {{"scale", 1.0}};
    op.scope = "w";
    emit(graph, std::move(op), "y");
    return graph;
  }

  std::vector<Graph> programs_;
  ArenaLayout layout_;
  CpuDevice device_;
  std::unique_ptr<DeviceMemory> memory_;
};

std::vector<std::byte> golden(const std::string& stem, const std::string& name) {
  const ModelFolder folder = ModelFolder::open(kGolden, stem);
  const StoredTensor stored = folder.find(name);
  std::vector<std::byte> bytes(static_cast<size_t>(stored.entry->bytes));
  stored.file->read(*stored.entry, 0, bytes);
  return bytes;
}

const char* stem_of(bool nested) { return nested ? "nested" : "plain"; }

TEST(QuantisedWeights, have_the_codes_of_bitsandbytes) {
  for (const bool nested : {false, true}) {
    OneWeight weight(nested);
    weight.load(kGolden, "weight");
    EXPECT_EQ(weight.bytes("w.weight"), golden(stem_of(nested), "w.weight"));
    EXPECT_EQ(weight.bytes("w.weight.absmax"), golden(stem_of(nested), "w.weight.absmax"));
    if (!nested) continue;
    for (const std::string name : {"w.weight.nested_absmax", "w.weight.nested_quant_map"})
      EXPECT_EQ(weight.bytes(name), golden("nested", name));
  }
}

TEST(QuantisedWeights, of_a_bitsandbytes_checkpoint_dequantise_to_the_same_bits) {
  for (const bool nested : {false, true}) {
    OneWeight weight(nested);
    weight.load(kGolden, stem_of(nested));
    EXPECT_EQ(weight.dequantised(), golden(std::string(stem_of(nested)) + "_dequantized", "w.weight"));
  }
}

TEST(QuantisedWeights, a_checkpoint_of_the_other_kind_is_refused_with_the_key_to_set) {
  OneWeight weight(true);
  EXPECT_THAT(message_of<UsageError>([&] { weight.load(kGolden, "plain"); }),
              HasSubstr("set method.double_quant: false"));
}

TEST(QuantisedWeights, a_value_that_is_not_finite_is_refused_with_its_place) {
  OneWeight weight(true);
  std::vector<float> chunk(1024);
  const auto read = [](int64_t first, std::span<float> to) {
    for (size_t i = 0; i < to.size(); ++i) to[i] = first + static_cast<int64_t>(i) == 5000 ? INFINITY : 0.1F;
  };
  EXPECT_THAT(message_of<DamagedError>([&] { quantise_values(weight.state(), weight.rows(), chunk, read); }),
              HasSubstr("w.weight: holds a value that is not finite, between elements 4992 and 5056"));
}

TEST(QuantisedWeights, the_way_a_folder_is_quantised_is_read_or_refused_by_its_key) {
  const TestFolder folder;
  const auto stored = [&](const std::string& config) {
    folder.write("config.json", config);
    return stored_quantisation(folder.path());
  };
  EXPECT_FALSE(stored(R"({"model_type": "llama"})").has_value());
  EXPECT_TRUE(stored(R"({"quantization_config": {"load_in_4bit": true, "bnb_4bit_quant_type": "nf4",
                         "bnb_4bit_use_double_quant": true}})")
                  ->nested);
  for (const auto& [config, reason] : std::vector<std::pair<std::string, std::string>>{
           {R"({"quantization_config": {"quant_method": "gptq"}})", "quant_method 'gptq'"},
           {R"({"quantization_config": {"load_in_8bit": true}})", "only load_in_4bit"},
           {R"({"quantization_config": {"load_in_4bit": true}})", "bnb_4bit_quant_type 'fp4'"}})
    EXPECT_THAT(message_of<UsageError>([&] { stored(config); }), HasSubstr(reason));
}

}  // namespace
}  // namespace plimsoll
