// The weights of tests/golden/nf4, which bitsandbytes quantised (tests/golden/make_golden.py).
#include "weights/quantised_weights.h"
#include "graph/op_kind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "cpu/describe.h"
#include "files/test_folder.h"
#include "formats/convert.h"
#include "formats/load.h"
#include "formats/model_folder.h"
#include "ops/linear/nf4.h"
#include "ops/rule.h"
#include "passes/train.h"
#include "prepare/setup.h"
#include "ranks/thread_group.h"
#include "runtime/device.h"
#include "runtime/executor.h"
#include "tensor/bf16.h"
#include "tensor/f16.h"
#include "weights/rank_reader.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

const fs::path kGolden = "tests/golden/nf4";
constexpr int64_t kOut = 160;
constexpr int64_t kIn = 128;

CpuSettings on_one_thread() { return cpu_settings({std::nullopt, 1}); }

// A program that multiplies by the weight `w.weight` [160, 128], and memory for it.
class OneWeight {
 public:
  explicit OneWeight(bool nested) : OneWeight(QuantiseOptions{nested}) {}
  explicit OneWeight(const QuantiseOptions& options, const Shape& shape = {kOut, kIn})
      : OneWeight(assign_scratch(quantise(linear(shape), options), describe_cpu(on_one_thread().isa, 1))) {}

  [[nodiscard]] PersistentState state() const { return {layout_, memory_->data()}; }
  [[nodiscard]] QuantisedRows rows() const {
    return find_quantised(state(), *state().find("w.weight")).value();
  }
  void load(const fs::path& folder, const std::string& stem, RankReader* reader = nullptr) {
    std::vector<std::byte> staging(16384);  // the weight goes through it in ten parts
    load_quantised(state(), rows(), ModelFolder::open(folder, stem), staging, reader);
  }
  // All values, as the forward pass reads them, by a way of their own.
  [[nodiscard]] std::vector<float> values() const {
    std::vector<std::byte> staging(1000);
    std::vector<float> all;
    visit_quantised(state(), rows(), staging, [&](int64_t first, std::span<const float> part) {
      EXPECT_EQ(first, std::ssize(all));
      all.insert(all.end(), part.begin(), part.end());
    });
    return all;
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

  static Graph linear(const Shape& shape) {
    Graph graph("one");
    const TensorId x = graph.add_tensor({"x", {1, shape[1]}, DType::bf16, Role::input});
    const TensorId w = graph.add_tensor({"w.weight", shape, DType::bf16, Role::frozen_weight});
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

// Shares of three ranks, the last one shorter: plain weights, and codes that bitsandbytes has made.
TEST(QuantisedWeights, that_ranks_read_by_shares_have_the_bits_of_one) {
  for (const bool nested : {false, true}) {
    for (const std::string stem : {"weight", stem_of(nested)}) {
      OneWeight alone(nested);
      alone.load(kGolden, stem);
      std::array<int64_t, 3> read{};
      run_as_threads(static_cast<int>(read.size()), [&](Group& group) {
        RunRanks ranks(group);
        OrderedSum sum(group);
        RankReader reader(ranks, sum);
        OneWeight weight(nested);
        weight.load(kGolden, stem, &reader);
        for (const TableRow& row : weight.state().rows())
          EXPECT_EQ(weight.bytes(row.name), alone.bytes(row.name)) << row.name;
        read[static_cast<size_t>(group.rank())] = reader.read_bytes();
      });
      const int64_t weight_bytes = ModelFolder::open(kGolden, stem).find("w.weight").entry->bytes;
      const int64_t all = std::accumulate(read.begin(), read.end(), int64_t{0});
      if (std::string_view(stem) == "weight")
        EXPECT_EQ(all, weight_bytes);
      else
        EXPECT_GT(all, weight_bytes);  // codes, and their scales
      for (const int64_t bytes : read) EXPECT_LT(bytes, weight_bytes / 2);
    }
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

std::optional<QuantiseOptions> stored_in(const fs::path& folder) {
  return stored_quantisation(folder, read_config(folder),
                             [&] { return read_model_spec(folder / "config.json"); });
}

TEST(QuantisedWeights, the_way_a_folder_is_quantised_is_read_or_refused_by_its_key) {
  const TestFolder folder;
  const auto stored = [&](const std::string& config) {
    folder.write("config.json", config);
    return stored_in(folder.path());
  };
  const std::string llama =
      R"("model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 32, "hidden_size": 16,
         "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, )";
  EXPECT_FALSE(stored(R"({"model_type": "llama"})").has_value());
  EXPECT_TRUE(stored("{" + llama + R"("quantization_config": {"load_in_4bit": true,
                         "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": true}})")
                  ->nested);
  EXPECT_EQ(stored("{" + llama + R"("quantization_config": {"load_in_8bit": true}})")->format,
            WeightFormat::int8);
  for (const auto& [config, reason] : std::vector<std::pair<std::string, std::string>>{
           {R"({"quantization_config": {"quant_method": "gptq"}})", "quant_method 'gptq'"},
           {R"({"quantization_config": {"load_in_4bit": false}})", "only load_in_4bit"},
           {R"({"quantization_config": {"load_in_4bit": true}})", "bnb_4bit_quant_type 'fp4'"}})
    EXPECT_THAT(message_of<UsageError>([&] { stored(config); }), HasSubstr(reason));
  // Without weights llm_int8_skip_modules says what stays whole, by the rule of transformers.
  const auto skipping = [&](const std::string& list) {
    return stored("{" + llama + R"("quantization_config": {"load_in_4bit": true, "bnb_4bit_quant_type": "nf4",
                  "llm_int8_skip_modules": )" +
                  list + "}}")
        ->kept;
  };
  EXPECT_THAT(skipping(R"(["down_proj"])"),
              UnorderedElementsAre("model.layers.0.mlp.down_proj", "model.layers.1.mlp.down_proj"));
  EXPECT_THAT(skipping(R"(["model.layers.1.self_attn.q_proj", "lm_head"])"),
              UnorderedElementsAre("model.layers.1.self_attn.q_proj", "lm_head"));
  EXPECT_THAT(skipping(R"(["model.layers.[0-9]+.self_attn.k", "layers.0.self_attn"])"), IsEmpty())
      << "an expression ends at a dot, another name at its end";
  EXPECT_THAT(skipping("null"), IsEmpty());
  EXPECT_THROW(skipping("7"), DamagedError);
}

// A folder of bitsandbytes whose tensors are empty: which modules have a state is in the headers.
std::vector<std::string> kept_beside(const std::vector<std::string>& whole,
                                     const std::vector<std::string>& quantised) {
  const TestFolder folder;
  folder.write("config.json",
               R"({"quantization_config": {"load_in_4bit": true, "bnb_4bit_quant_type": "nf4"}})");
  std::vector<TensorSpec> specs;
  for (const std::string& name : whole) specs.push_back({name + ".weight", DType::f32, {2, 2}});
  for (const std::string& name : quantised) {
    specs.push_back({name + ".weight", DType::u8, {2, 1}});
    specs.push_back({name + ".weight.quant_state.bitsandbytes__nf4", DType::u8, {4}});
  }
  specs.push_back({"model.norm.weight", DType::f32, {2}});
  SafetensorsWriter writer(folder.path() / "model.safetensors", specs, {});
  for (const TensorSpec& spec : writer.tensors())
    writer.write(spec.name,
                 std::vector<std::byte>(static_cast<size_t>(spec.shape.elements() * size_of(spec.dtype))));
  writer.finish();
  return stored_in(folder.path())->kept;
}

TEST(QuantisedWeights, modules_without_a_state_are_kept_in_one_name_where_no_block_has_one) {
  EXPECT_THAT(kept_beside({"model.layers.0.mlp.down_proj", "model.layers.1.mlp.down_proj", "lm_head"},
                          {"model.layers.0.mlp.up_proj", "model.layers.1.mlp.up_proj"}),
              UnorderedElementsAre("mlp.down_proj", "lm_head"));
  EXPECT_THAT(kept_beside({"model.layers.1.self_attn.q_proj"}, {"model.layers.0.self_attn.q_proj"}),
              UnorderedElementsAre("model.layers.1.self_attn.q_proj"));
  EXPECT_THAT(kept_beside({"encoder.block.0.layer.1.DenseReluDense.wo", "model.layers.0.attn.gk_proj.1"},
                          {"encoder.block.0.layer.1.DenseReluDense.wi", "model.layers.0.attn.gk_proj.0"}),
              UnorderedElementsAre("DenseReluDense.wo", "attn.gk_proj.1"));
}

TEST(QuantisedWeights, a_row_of_whole_values_is_filled_from_four_bits) {
  for (const bool nested : {false, true}) {
    Graph graph("one");
    graph.add_tensor({"w.weight", {kOut, kIn}, DType::bf16, Role::frozen_weight});
    const std::vector<Graph> programs = {std::move(graph)};
    const ArenaLayout layout = lay_out(programs, {.reuse = false});
    CpuDevice device(on_one_thread());
    const auto memory = device.map(layout.arena_bytes());
    const PersistentState state(layout, memory->data());
    std::vector<std::byte> staging(1000);  // pieces that begin and end within blocks
    const ModelFolder model = ModelFolder::open(kGolden, stem_of(nested));
    StoredNf4 stored(model, "w.weight", {kOut, kIn});
    load_from_quantised(state, *state.find("w.weight"), stored, staging);
    const auto bytes = state.bytes(*state.find("w.weight"));
    EXPECT_EQ((std::vector<std::byte>(bytes.begin(), bytes.end())),
              golden(std::string(stem_of(nested)) + "_dequantized", "w.weight"));
  }
}

// --- 8 bits ----------------------------------------------------------------------------------------------

const QuantiseOptions kInt8 = {.format = WeightFormat::int8};

// Rows that shares of ranks, and pieces of the staging, are cut within.
constexpr int64_t kRows = 45, kWidth = 203;

std::vector<float> some_values() {
  std::vector<float> values(static_cast<size_t>(kRows * kWidth));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = std::sin(static_cast<float>(i)) * static_cast<float>(1 + i / kWidth);
  return values;
}

// As bitsandbytes makes them of a weight in f16, step by step.
struct Stored {
  std::vector<int8_t> codes;
  std::vector<float> absmax = std::vector<float>(kRows);
};
Stored stored_by_formula() {
  Stored stored;
  const std::vector<float> values = some_values();
  const auto half = [&](size_t i) { return f32_from_f16(f16_from_f32(values[i])); };
  for (size_t row = 0; row < kRows; ++row) {
    for (size_t i = row * kWidth; i < (row + 1) * kWidth; ++i)
      stored.absmax[row] = std::max(stored.absmax[row], std::fabs(half(i)));
    for (size_t i = row * kWidth; i < (row + 1) * kWidth; ++i)
      stored.codes.push_back(
          static_cast<int8_t>(std::nearbyint(half(i) * (1.0F / stored.absmax[row] * 127.0F))));
  }
  return stored;
}

void write_plain(const fs::path& folder) {
  SafetensorsWriter writer(folder / "plain.safetensors", {{"w.weight", DType::f32, {kRows, kWidth}}}, {});
  const std::vector<float> values = some_values();
  writer.write("w.weight", std::as_bytes(std::span(values)));
  writer.finish();
}

void write_int8(const fs::path& folder, uint8_t format = 0) {
  const Stored stored = stored_by_formula();
  SafetensorsWriter writer(folder / "int8.safetensors",
                           {{"w.weight", DType::i8, {kRows, kWidth}},
                            {"w.SCB", DType::f32, {kRows}},
                            {"w.weight_format", DType::u8, {}}},
                           {});
  for (const TensorSpec& spec : writer.tensors())
    writer.write(spec.name, spec.name == "w.weight" ? std::as_bytes(std::span(stored.codes))
                            : spec.name == "w.SCB"  ? std::as_bytes(std::span(stored.absmax))
                                                    : std::as_bytes(std::span(&format, 1)));
  writer.finish();
}

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

TEST(Int8Weights, of_plain_folders_and_of_bitsandbytes_have_its_codes_and_scales) {
  const TestFolder folder;
  write_plain(folder.path());
  write_int8(folder.path());
  const Stored expected = stored_by_formula();
  for (const char* stem : {"plain", "int8"}) {
    OneWeight weight(kInt8, {kRows, kWidth});
    weight.load(folder.path(), stem);
    EXPECT_EQ(weight.bytes("w.weight"), bytes_of(expected.codes)) << stem;
    EXPECT_EQ(weight.bytes("w.SCB"), bytes_of(expected.absmax)) << stem;
  }
}

TEST(Int8Weights, are_dequantised_to_the_same_values_wherever_that_is_done) {
  const TestFolder folder;
  write_plain(folder.path());
  write_int8(folder.path());
  OneWeight weight(kInt8, {kRows, kWidth});
  weight.load(folder.path(), "plain");
  const std::vector<float> values = weight.values();
  ASSERT_EQ(std::ssize(values), kRows * kWidth);
  std::vector<uint16_t> rounded;
  for (const float value : values) rounded.push_back(bf16_from_f32(value));
  EXPECT_EQ(weight.dequantised(), bytes_of(rounded));
  // A folder in 8 bits, from within a row on.
  const ModelFolder model = ModelFolder::open(folder.path(), "int8");
  StoredInt8 stored(model, "w.weight", {kRows, kWidth});
  std::vector<float> part(300);
  stored.read(150, part);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), values.begin() + 150));
  // There and back, of plain ones.
  std::vector<float> whole = some_values();
  Int8RoundTrip("w.weight", kWidth, DType::f32).apply(0, whole);
  EXPECT_EQ(whole, values);
}

TEST(Int8Weights, that_ranks_read_by_shares_have_the_bits_of_one) {
  const TestFolder folder;
  write_plain(folder.path());
  write_int8(folder.path());
  for (const std::string stem : {"plain", "int8"}) {
    OneWeight alone(kInt8, {kRows, kWidth});
    alone.load(folder.path(), stem);
    const int64_t weight_bytes = ModelFolder::open(folder.path(), stem).find("w.weight").entry->bytes;
    run_as_threads(3, [&](Group& group) {
      RunRanks ranks(group);
      OrderedSum sum(group);
      RankReader reader(ranks, sum);
      OneWeight weight(kInt8, {kRows, kWidth});
      weight.load(folder.path(), stem, &reader);
      for (const TableRow& row : weight.state().rows())
        EXPECT_EQ(weight.bytes(row.name), alone.bytes(row.name)) << row.name;
      EXPECT_LT(reader.read_bytes(), weight_bytes / 2);
    });
  }
}

TEST(Int8Weights, with_rows_in_another_order_are_refused) {
  const TestFolder folder;
  write_int8(folder.path(), 1);
  OneWeight weight(kInt8, {kRows, kWidth});
  EXPECT_THAT(message_of<UsageError>([&] { weight.load(folder.path(), "int8"); }),
              HasSubstr("w.weight_format: 1 is an order of rows that is not supported"));
}

TEST(Int8Weights, a_value_that_f16_does_not_hold_is_refused_with_its_row) {
  OneWeight weight(kInt8, {kRows, kWidth});
  std::vector<float> chunk(1024);
  const auto read = [](int64_t first, std::span<float> to) {
    for (size_t i = 0; i < to.size(); ++i)
      to[i] = first + static_cast<int64_t>(i) == 20 * kWidth + 3 ? 70000.0F : 0.1F;
  };
  EXPECT_THAT(message_of<DamagedError>([&] { quantise_values(weight.state(), weight.rows(), chunk, read); }),
              HasSubstr("w.weight: row 20 holds a value that is not finite, or beyond the 65,504 of f16"));
}

}  // namespace
}  // namespace plimsoll
