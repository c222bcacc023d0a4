// A state on disk has the bytes of one in memory: when it is made, saved, loaded and rounded.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "cpu/describe.h"
#include "cpu/isa.h"
#include "formats/load.h"
#include "models/test_specs.h"
#include "plan/program/experiment.h"
#include "runs/checkpoint.h"
#include "runtime/run_memory.h"
#include "weights/row_io.h"
#include "weights/weights.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

struct DiskCase {
  const char* name;
  bool lora;
  bool nf4;
  TrainPrecision precision;
  bool int8 = false;
};

Experiment disk_experiment_of(const DiskCase& c) {
  Experiment experiment;
  experiment.model = test_spec({.family = "qwen2", .hidden = 64, .mlp = 96, .vocab = 300});
  experiment.lora = c.lora;
  experiment.quantised = c.nf4 || c.int8;
  if (c.int8) experiment.quantisation.format = WeightFormat::int8;
  experiment.lora_options = {.r = 4, .alpha = 8};
  experiment.precision = c.precision;
  experiment.effective_batch = 1;
  experiment.max_length = 16;
  return experiment;
}

// The persistent tensors of an experiment, all of them in one space.
class Machine {
 public:
  Machine(const Experiment& experiment, Space space)
      : layout_(lay_out(programs_of(experiment, space))),
        device_({Isa::avx2, 1}),
        memory_(device_, layout_, testing::TempDir()),
        state_(layout_, memory_.arenas()) {}
  [[nodiscard]] const PersistentState& state() const { return state_; }
  [[nodiscard]] std::vector<std::byte> bytes(const std::string& name) const {
    const TableRow& row = *state_.find(name);
    std::vector<std::byte> bytes(static_cast<size_t>(row.bytes));
    state_.read(row, 0, bytes);
    return bytes;
  }

 private:
  static std::vector<Graph> programs_of(const Experiment& experiment, Space space) {
    Variant variant;
    variant.loss_chunk = 16;
    std::vector<Graph> programs = build_programs(experiment, variant, describe_cpu(Isa::avx2, 1));
    // Layout and state do not ask how a program would reach its tensors.
    for (Graph& graph : programs)
      for (size_t i = 0; i < graph.tensors().size(); ++i)
        if (is_persistent(graph.tensors()[i].role)) graph.set_space(static_cast<TensorId>(i), space);
    return programs;
  }

  ArenaLayout layout_;
  CpuDevice device_;
  RunMemory memory_;
  PersistentState state_;
};

void expect_equal(const Machine& a, const Machine& b) {
  ASSERT_EQ(a.state().rows().size(), b.state().rows().size());
  for (const TableRow& row : a.state().rows()) EXPECT_EQ(a.bytes(row.name), b.bytes(row.name)) << row.name;
}

// New weights, and states that no two tensors share.
void make(const Machine& machine, const Experiment& experiment) {
  init_base_weights(machine.state(), experiment.model, 3);
  if (experiment.lora) init_adapters(machine.state(), 3);
  std::vector<std::byte> staging(8192);
  for (const TableRow& row : machine.state().rows()) {
    if (row.role != Role::optimizer_state) continue;
    machine.state().fill(row, staging, [&](int64_t start, std::span<std::byte> piece) {
      for (size_t i = 0; i < piece.size(); ++i)
        piece[i] = static_cast<std::byte>((static_cast<size_t>(start) + i) * 7 + row.name.size());
    });
  }
}

fs::path fresh(const std::string& name) {
  const fs::path folder = fs::path(testing::TempDir()) / ("state_on_disk_" + name);
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

std::string content(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

fs::path save(const Machine& machine, const Experiment& experiment, const std::string& name) {
  const fs::path model = fresh("model");
  std::ofstream(model / "config.json") << "{\"model_type\": \"qwen2\"}";
  const fs::path output = fresh(name);
  TrainerState trainer;
  trainer.step = 1;
  RunFolder run(output);
  run.begin();
  const auto from = std::make_shared<SavedFrom>(model, run.temporary("from-model"));
  save_checkpoint({&run, from, "recipe", 2}, experiment, machine.state(), trainer);
  return output / "checkpoint-1";
}

class StateOnDisk : public testing::TestWithParam<DiskCase> {};

TEST_P(StateOnDisk, is_made_saved_and_loaded_with_the_bytes_of_one_in_memory) {
  const Experiment experiment = disk_experiment_of(GetParam());
  const Machine memory(experiment, Space::device);
  const Machine disk(experiment, Space::disk);
  make(memory, experiment);
  make(disk, experiment);
  expect_equal(memory, disk);

  const fs::path a = save(memory, experiment, "a");
  const fs::path b = save(disk, experiment, "b");
  int files = 0;
  for (const auto& entry : fs::directory_iterator(a)) {
    EXPECT_EQ(content(entry.path()), content(b / entry.path().filename())) << entry.path();
    ++files;
  }
  EXPECT_GE(files, 5);

  // Both ways; frozen weights come from elsewhere.
  const Machine disk_again(experiment, Space::disk);
  const Machine memory_again(experiment, Space::host);
  for (const Machine* again : {&disk_again, &memory_again}) {
    if (experiment.lora) init_base_weights(again->state(), experiment.model, 3);
    load_checkpoint(again == &disk_again ? a : b, experiment, again->state());
    expect_equal(memory, *again);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Experiments, StateOnDisk,
    testing::Values(DiskCase{"full_f32", false, false, {}},
                    DiskCase{"full_bf16", false, false, {DType::bf16, DType::f32, DType::f32, false, true}},
                    DiskCase{
                        "full_bf16_master", false, false, {DType::bf16, DType::f32, DType::f32, true, false}},
                    DiskCase{"lora_bf16", true, false, {DType::bf16, DType::f32, DType::f32, false, true}},
                    DiskCase{"qlora", true, true, {DType::bf16, DType::f32, DType::f32, false, true}},
                    DiskCase{"int8", true, false, {DType::bf16, DType::f32, DType::f32, false, true}, true}),
    [](const auto& tested) { return std::string(tested.param.name); });

// One row of 76,800 bytes through 16 KiB, in pieces that end anywhere.
TEST(RowsOnDisk, pass_through_staging_smaller_than_they_are) {
  const DiskCase c{"", false, false, {DType::bf16, DType::f32, DType::f32, true, false}};
  const Experiment experiment = disk_experiment_of(c);
  const Machine memory(experiment, Space::device);
  const Machine disk(experiment, Space::disk);
  make(memory, experiment);
  const std::string name = "model.embed_tokens.weight";
  const fs::path file = fresh("rows") / "model.safetensors";
  std::vector<std::byte> staging(16384);
  {
    const TableRow& master = *memory.state().find(name + ".master");
    SafetensorsWriter writer(file, {{name, master.dtype, master.shape}});
    write_row(memory.state(), master, writer, name, staging);
    writer.finish();
  }
  const ModelFolder folder = ModelFolder::open(file.parent_path());
  const TableRow& weight = *disk.state().find(name);
  const TableRow& master = *disk.state().find(name + ".master");
  load_row(disk.state(), weight, folder.find(name), staging);  // f32 -> bf16 on the way
  EXPECT_EQ(disk.bytes(name), memory.bytes(name));
  load_row(disk.state(), master, folder.find(name), staging);
  disk.state().fill(weight, staging,
                    [](int64_t, std::span<std::byte> p) { std::ranges::fill(p, std::byte{9}); });
  round_from_master(disk.state(), weight, master, staging);
  EXPECT_EQ(disk.bytes(name), memory.bytes(name));
  EXPECT_EQ(disk.bytes(name + ".master"), memory.bytes(name + ".master"));
}

TEST(RowsOnDisk, have_no_address_and_no_bytes_outside_of_them) {
  const Experiment experiment = disk_experiment_of({"", false, false, {}});
  const Machine disk(experiment, Space::disk);
  const TableRow& row = disk.state().rows().front();
  EXPECT_THROW((void)disk.state().bytes(row), InternalError);
  std::vector<std::byte> bytes(16);
  EXPECT_THROW(disk.state().read(row, row.bytes - 15, bytes), InternalError);
  EXPECT_THROW(disk.state().write(row, -1, bytes), InternalError);
}

}  // namespace
}  // namespace plimsoll
