// A device with memory and queues of its own, on the emulated card: programs whose tensors come and go give
// the same in every order of the queues, each wait is needed, and no address of the card is the host's.
#include "runtime/gpu_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "base/error.h"
#include "gpu/card_fault.h"
#include "gpu/cublas_lt.h"
#include "ops/operands.h"
#include "ops/rule.h"
#include "ops/step_values.h"
#include "runtime/cuda_device.h"
#include "runtime/emulated_device.h"
#include "runtime/executor.h"

namespace plimsoll {
namespace {

using gpu::EmulatedOrder;
using gpu::emulated::When;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr uint64_t kSeeds = 20;
constexpr int kElements = 1300;

constexpr int kLayers = 3;

// The disk's file in memory where there is such a folder: what is compared is values, not the disk.
std::filesystem::path disk_folder() {
  const std::filesystem::path memory = "/dev/shm";
  return std::filesystem::exists(memory) ? memory : std::filesystem::temp_directory_path();
}

// Lines of a program over tensors of one shape.
class ProgramText {
 public:
  explicit ProgramText(std::string space) : space_(std::move(space)) {}

  void tensor(const std::string& name, const std::string& role) {
    text_ += "tensor " + name + kShape + " " + role + (role == "input" ? "" : " " + space_) + "\n";
  }
  void add(const std::string& to, const std::string& a, const std::string& b) {
    text_ += to + kShape + " = add(" + a + ", " + b + ") forward\n";
  }
  void fetch(const std::string& copy, const std::string& offloaded) {
    text_ += copy + kShape + " = fetch(" + offloaded + ") {elements=1300, first=0} forward\n";
  }
  void store(const std::string& offloaded, const std::string& copy) {
    text_ += offloaded + " = store(" + copy + ") {first=0} forward\n";
  }
  void wait(const std::string& kind, const std::string& copy) {
    text_ += copy + " = " + kind + "_wait(" + copy + ") forward\n";
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  static constexpr const char* kShape = " f32[1300]";
  std::string space_;
  std::string text_ = "graph g\n";
};

std::string name(const char* stem, int i) { return stem + std::to_string(i); }

// Layers y = y + w, whose weights come while another layer computes and whose results are kept elsewhere.
void put_layers(ProgramText& p) {
  std::string y = "x";
  p.fetch("in0", "w0");
  for (int i = 0; i < kLayers; ++i) {
    if (i + 1 < kLayers) p.fetch(name("in", i + 1), name("w", i + 1));
    p.wait("fetch", name("in", i));
    p.add(name("y", i), y, name("in", i));
    y = name("y", i);
    p.store(name("kept", i), y);
    if (i > 0) p.wait("store", name("y", i - 1));
  }
}

// total = 2 total + what was kept + 2 turn + turn', where turn becomes twice the last layer's result.
std::string program(const std::string& space) {
  ProgramText p(space);
  p.tensor("x", "input");
  for (const char* state : {"total", "turn"}) p.tensor(state, "state");
  for (int i = 0; i < kLayers; ++i) p.tensor(name("w", i), "state");
  for (int i = 0; i < kLayers; ++i) p.tensor(name("kept", i), "activation");
  put_layers(p);
  const std::string last = name("y", kLayers - 1);
  p.wait("store", last);
  p.fetch("before", "turn");
  p.add("more", last, last);
  p.store("turn", "more");
  p.fetch("since", "turn");
  p.wait("fetch", "before");
  p.add("before2", "before", "before");
  p.wait("fetch", "since");
  p.add("turns", "before2", "since");
  p.wait("store", "more");
  p.fetch("old", "total");
  p.wait("fetch", "old");
  p.add("twice", "old", "old");
  p.add("sum", "twice", "turns");
  std::string sum = "sum";
  for (int i = kLayers - 1; i >= 0; --i) {
    p.fetch(name("back", i), name("kept", i));
    p.wait("fetch", name("back", i));
    p.add(name("sum", i), sum, name("back", i));
    sum = name("sum", i);
  }
  p.store("total", sum);
  p.wait("store", sum);
  return p.text();
}

// A queue, or -1 for the host, and the number of the event that it waits for.
using Wait = std::pair<int, int>;

enum class Forgets : uint8_t { always, in_captures };

// A card that leaves some of its waits out, and records which of them brought their queue something new: what
// had been put to the event's queue by then, or what that one knew.
class ForgetfulCard : public gpu::EmulatedCard {
 public:
  ForgetfulCard(EmulatedOrder order, std::optional<Wait> forgotten, std::set<Wait>* telling,
                Forgets forgets = Forgets::always)
      : EmulatedCard(order), forgotten_(forgotten), telling_(telling), forgets_(forgets) {}

  std::unique_ptr<gpu::Event> make_event(const std::string& name) override {
    auto event = EmulatedCard::make_event(name);
    numbers_[event.get()] = static_cast<int>(numbers_.size());
    return event;
  }
  void record(gpu::Queue queue, gpu::Event& event) override {
    at_[&event] = known_[static_cast<size_t>(queue)];
    EmulatedCard::record(queue, event);
  }
  void wait(gpu::Queue queue, const gpu::Event& event) override {
    Known& known = known_[static_cast<size_t>(queue)];
    bool tells = false;
    for (size_t i = 0; i < known.size(); ++i) {
      tells |= at_[&event][i] > known[i];
      known[i] = std::max(known[i], at_[&event][i]);
    }
    if (!leaves_out({static_cast<int>(queue), numbers_.at(&event)}, tells)) EmulatedCard::wait(queue, event);
  }
  // For staging alone: what else the host waits for are transfers that are no longer needed.
  void wait_on_host(const gpu::Event& event) override {
    const int number = numbers_.at(&event);
    if (!leaves_out({-1, number}, number < 2)) EmulatedCard::wait_on_host(event);
  }
  void copy(gpu::Queue queue, std::byte* to, std::span<const std::byte> from) override {
    put(queue);
    EmulatedCard::copy(queue, to, from);
  }
  void fill(gpu::Queue queue, std::span<std::byte> bytes, int value) override {
    put(queue);
    EmulatedCard::fill(queue, bytes, value);
  }
  void run(const std::function<void()>& launches) override {
    put(gpu::Queue::compute);
    EmulatedCard::run(launches);
  }
  void begin_capture() override {
    captures_ = true;
    EmulatedCard::begin_capture();
  }
  std::unique_ptr<gpu::CardGraph> end_capture() override {
    captures_ = false;
    return EmulatedCard::end_capture();
  }

 private:
  using Known = std::array<int, 3>;  // of each queue, how much comes before

  void put(gpu::Queue queue) { ++known_[static_cast<size_t>(queue)][static_cast<size_t>(queue)]; }
  bool leaves_out(Wait wait, bool tells) {
    if (tells && telling_ != nullptr) telling_->insert(wait);
    return wait == forgotten_ && (captures_ || forgets_ == Forgets::always);
  }

  std::optional<Wait> forgotten_;
  std::set<Wait>* telling_;
  Forgets forgets_;
  bool captures_ = false;
  std::map<const gpu::Event*, int> numbers_;
  std::array<Known, 3> known_{};
  std::map<const gpu::Event*, Known> at_;
};

// A persistent tensor of a program that is at rest.
void move(const Arenas& arenas, const TableRow& row, std::span<float> values, bool writes) {
  const auto bytes = std::as_writable_bytes(values);
  if (row.space == Space::disk) {
    writes ? arenas.disk->write(row.offset, bytes) : arenas.disk->read(row.offset, bytes);
  } else if (writes) {
    std::copy(bytes.begin(), bytes.end(), arenas.address(row));
  } else {
    std::copy_n(arenas.address(row), bytes.size(), bytes.begin());
  }
}

constexpr int kRuns = 4;

// `total` after some runs, between which the host does not wait.
std::vector<float> total_on(Device& device, const std::string& space, int graphs = 0, bool poison = true) {
  const std::vector<Graph> programs = {parse_graph(program(space))};
  const ArenaLayout layout = lay_out(programs);
  validate(programs, layout);
  const RunMemory memory(device, layout, disk_folder());
  const Executor executor(programs[0], layout.programs[0], device, memory.arenas(),
                          {.poison = poison, .graphs = graphs});
  std::vector<float> values(kElements);
  const auto row = [&](const std::string& tensor) { return *layout.find_persistent(tensor); };
  for (const char* state : {"total", "turn"}) move(memory.arenas(), row(state), values, true);
  for (int i = 0; i < kLayers; ++i) {
    std::iota(values.begin(), values.end(), static_cast<float>(i));
    move(memory.arenas(), row(name("w", i)), values, true);
  }
  for (int i = 1; i <= kRuns; ++i) {
    const auto x = executor.input<float>("x");
    std::iota(x.begin(), x.end(), static_cast<float>(i));
    executor.run();
  }
  device.finish();
  move(memory.arenas(), row("total"), values, false);
  return values;
}

std::vector<float> expected() {
  std::vector<float> values(kElements);
  for (int k = 0; k < kElements; ++k) {
    float total = 0, turn = 0;
    for (int run = 1; run <= kRuns; ++run) {
      total *= 2;
      auto y = static_cast<float>(run + k);
      for (int i = 0; i < kLayers; ++i) total += y += static_cast<float>(i + k);
      total += 2 * turn + 2 * y;
      turn = 2 * y;
    }
    values[static_cast<size_t>(k)] = total;
  }
  return values;
}

class OnItsOwnMemory : public testing::TestWithParam<const char*> {};

TEST_P(OnItsOwnMemory, a_program_gives_the_same_in_every_order_of_the_queues) {
  for (const When when : {When::at_once, When::late}) {
    EmulatedDevice device(EmulatedOrder{when});
    EXPECT_EQ(total_on(device, GetParam()), expected());
  }
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    EmulatedDevice device(EmulatedOrder{When::shuffled, seed});
    ASSERT_EQ(total_on(device, GetParam()), expected()) << seed;
  }
}

// A fetch's wait for its start is idle where the layout gave its copy bytes that were not used since the
// queue last waited.
bool may_be_idle(const Wait& wait) {
  return wait.first == static_cast<int>(gpu::Queue::in) && wait.second % 2 == 0;
}

TEST_P(OnItsOwnMemory, without_any_one_of_its_waits_the_result_is_another_in_some_order) {
  std::set<Wait> waits;
  EmulatedDevice whole(std::make_unique<ForgetfulCard>(EmulatedOrder{When::at_once}, std::nullopt, &waits));
  ASSERT_EQ(total_on(whole, GetParam()), expected());
  EXPECT_GE(waits.size(), 28U);
  int idle = 0;
  for (const Wait& wait : waits) {
    bool noticed = false;
    for (uint64_t seed = 0; seed <= 2 * kSeeds && !noticed; ++seed) {
      const EmulatedOrder order{seed == 0 ? When::late : When::shuffled, seed};
      EmulatedDevice device(std::make_unique<ForgetfulCard>(order, wait, nullptr));
      noticed = total_on(device, GetParam()) != expected();
    }
    idle += !noticed && may_be_idle(wait) ? 1 : 0;
    EXPECT_TRUE(noticed || may_be_idle(wait))
        << "queue " << wait.first << " need not wait for event " << wait.second;
  }
  EXPECT_LE(idle, 2);
}

// Run one by one first, captured when it comes again, launched from then on. A transfer of a disk needs the
// host.
TEST_P(OnItsOwnMemory, a_captured_program_gives_the_same_in_every_order_of_the_queues) {
  const bool captured = std::string_view(GetParam()) == "host";
  for (uint64_t seed = 0; seed <= kSeeds + 1; ++seed) {
    const When when = seed == 0 ? When::at_once : seed == 1 ? When::late : When::shuffled;
    EmulatedDevice device(EmulatedOrder{when, seed});
    ASSERT_EQ(total_on(device, GetParam(), 1, seed % 2 == 0), expected()) << seed;
    EXPECT_EQ(device.graph_use().graphs, captured ? 1 : 0);
    if (seed % 2 == 0) continue;  // what poisons is no part of the program
    EXPECT_EQ(device.graph_use().nodes, captured ? gpu_launches(parse_graph(program("host")), false) : 0);
  }
}

// A queue that joins no capture, or that the end does not wait for, ends it; others give another result.
TEST(GpuDevice, a_graph_that_was_captured_without_any_one_of_its_waits_is_noticed) {
  std::set<Wait> waits;
  EmulatedDevice whole(std::make_unique<ForgetfulCard>(EmulatedOrder{When::at_once}, std::nullopt, &waits));
  ASSERT_EQ(total_on(whole, "host", 1), expected());
  int refused = 0, idle = 0;
  for (const Wait& wait : waits) {
    if (wait.first < 0) continue;  // the host's, for staging
    bool noticed = false;
    for (uint64_t seed = 0; seed <= 2 * kSeeds && !noticed; ++seed) {
      const EmulatedOrder order{seed == 0 ? When::late : When::shuffled, seed};
      EmulatedDevice device(std::make_unique<ForgetfulCard>(order, wait, nullptr, Forgets::in_captures));
      try {
        noticed = total_on(device, "host", 1) != expected();
      } catch (const InternalError&) {
        noticed = true;
        ++refused;
      }
    }
    idle += !noticed && may_be_idle(wait) ? 1 : 0;
    EXPECT_TRUE(noticed || may_be_idle(wait))
        << "queue " << wait.first << " need not wait for event " << wait.second;
  }
  EXPECT_GE(refused, 2);
  EXPECT_LE(idle, 2);
}

INSTANTIATE_TEST_SUITE_P(Spaces, OnItsOwnMemory, testing::Values("host", "disk"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST(GpuDevice, the_host_does_not_reach_its_memory) {
  EmulatedDevice device;
  const auto memory = device.map(4096);
  const std::vector<std::byte> from(4096, std::byte{7});
  device.upload(memory->data(), from);
  device.finish();
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH([[maybe_unused]] volatile const std::byte read = *memory->data(), "");
}

// The kernel's count of what this process has locked.
int64_t locked_bytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  int64_t kibibytes = 0;
  while (status >> word)
    if (word == "VmLck:") status >> kibibytes;
  return kibibytes * kKiB;
}

TEST(GpuDevice, copies_from_host_memory_whose_front_other_processes_have_too) {
  EmulatedDevice device({When::late});
  const int64_t before = locked_bytes();
  NodePages pages(no_other_ranks(), 5000);
  ASSERT_EQ(pages.bytes(), 2 * 4096);
  const auto card = device.map(1024);
  for (const int64_t bytes : {3 * 4096, 2 * 4096}) {
    const auto host = device.map_host_over(pages, bytes);
    EXPECT_EQ(host->bytes(), bytes);
    EXPECT_EQ(locked_bytes() - before, bytes);
    std::fill_n(host->data(), bytes, std::byte{static_cast<unsigned char>(bytes / 4096)});
    pages.seal();
    for (const int64_t at : {int64_t{0}, bytes - 1024}) {
      std::vector<std::byte> got(1024);
      device.copy(card->data(), {host->data() + at, 1024});
      device.finish_copies();
      device.download(got, card->data());
      EXPECT_THAT(got, testing::Each(host->data()[0])) << at << " of " << bytes;
    }
  }
  EXPECT_EQ(locked_bytes(), before);
  CpuDevice other({});
  EXPECT_THROW((void)other.map_host_over(pages, 4096), InternalError);
}

TEST(GpuDevice, what_is_uploaded_and_filled_in_turn_is_downloaded_as_it_is_then) {
  constexpr size_t kBytes = (5 << 20) + 3;  // several pieces of staging
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    EmulatedDevice device(EmulatedOrder{When::shuffled, seed});
    const auto memory = device.map(kBytes);
    std::vector<std::byte> from(kBytes), to(kBytes);
    for (size_t i = 0; i < kBytes; ++i) from[i] = static_cast<std::byte>(i * 7 + i / 251);
    device.upload(memory->data(), from);
    std::vector<std::byte> expected = from;
    std::fill(from.begin(), from.end(), std::byte{});  // is the caller's again
    device.fill({memory->data() + 5, 100}, 0xFF);
    std::fill_n(expected.begin() + 5, 100, std::byte{0xFF});
    device.download(to, memory->data());
    ASSERT_EQ(to, expected) << seed;
  }
}

// Closed under its feet: what the disk does then is an error of the system.
TEST(GpuDevice, a_disk_that_fails_stops_the_run_at_its_next_result_and_no_later_one) {
  EmulatedDevice device;
  const auto disk = device.open_disk(testing::TempDir(), 8192);
  const auto memory = device.map(8192);
  Transfer beyond{true, {memory->data(), 4096}, nullptr, disk.get(), 1 << 20, {}};
  const Transfer inside{true, {memory->data(), 4096}, nullptr, disk.get(), 0, {}};
  for (const BoundTransfer& transfer : device.bind_transfers(std::vector{beyond, inside})) {
    transfer.start();
    transfer.wait();
  }
  std::vector<std::byte> to(16);
  EXPECT_THROW(device.download(to, memory->data()), InternalError);
  device.download(to, memory->data());
  EXPECT_EQ(to.front(), std::byte{});
}

TEST(GpuDevice, a_program_that_fails_on_it_leaves_it_usable) {
  EmulatedDevice device;
  const std::vector<Graph> programs = {
      parse_graph("graph g\ntensor ids i32[2] input\ntensor step f64[32] input\ntensor w f32[4, 8] state\n"
                  "y f32[2, 8] = embedding(ids, w, step) forward\n")};
  const ArenaLayout layout = lay_out(programs);
  const RunMemory memory(device, layout, "");
  const Executor executor(programs[0], layout.programs[0], device, memory.arenas());
  executor.input<double>("step")[static_cast<size_t>(StepValue::live_tokens)] = 2;
  executor.input<int32_t>("ids")[1] = 5;  // of four
  const auto run = [&] {
    executor.run();
    device.finish();
  };
  try {
    run();
    FAIL() << "an id outside of the table was taken";
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("outside the vocabulary"));
  }
  executor.input<int32_t>("ids")[1] = 3;
  run();
}

constexpr int64_t kRows = 8, kWidth = 4;

struct MicroStep {
  int64_t live = kRows;
  bool first = false;
};

// Sums of products over the rows that are live, of runs between which the host does not wait.
std::vector<float> gradient_on(Device& device,
                               const std::vector<MicroStep>& steps = {{kRows}, {3, true}, {5}, {kRows}},
                               int graphs = 0) {
  const std::vector<Graph> programs = {
      parse_graph("graph g\ntensor x f32[8, 4] input\ntensor d_y f32[8, 4] input\ntensor step f64[16] input\n"
                  "tensor g f32[4, 4] gradient\n"
                  "g = linear_dw(x, d_y, step) {accumulate=0, scale=1.0} @l backward\n")};
  const ArenaLayout layout = lay_out(programs);
  const RunMemory memory(device, layout, "");
  const Executor executor(programs[0], layout.programs[0], device, memory.arenas(), {.graphs = graphs});
  for (size_t i = 0; i < steps.size(); ++i) {
    const int64_t live = steps[i].live;
    const auto step = executor.input<double>("step");
    step[static_cast<size_t>(StepValue::live_tokens)] = static_cast<double>(live);
    step[static_cast<size_t>(StepValue::first_micro_step)] = steps[i].first ? 1 : 0;
    for (const char* name : {"x", "d_y"}) {
      const auto values = executor.input<float>(name);
      for (size_t k = 0; k < values.size(); ++k)
        values[k] = k < static_cast<size_t>(live * kWidth) ? static_cast<float>((k + i) % 7) : NAN;
    }
    executor.run();
  }
  std::vector<float> gradient(kWidth * kWidth);
  device.download(std::as_writable_bytes(std::span(gradient)),
                  memory.arenas().address(*layout.find_persistent("g")));
  return gradient;
}

std::unique_ptr<gpu::ProductLibrary> fake_library() {
  return gpu::open_cublas_lt([](const char* name) {
           return std::string_view(name) == "PLIMSOLL_CUBLASLT" ? PLIMSOLL_FAKE_CUBLASLT : nullptr;
         })
      .library;
}

TEST(GpuDevice, a_librarys_products_are_of_the_rows_that_are_live_when_their_kernels_run) {
  EmulatedDevice own(EmulatedOrder{When::at_once});
  const std::vector<float> expected = gradient_on(own);
  EXPECT_GT(expected[0], 0);
  for (const When when : {When::at_once, When::late, When::shuffled}) {
    auto library = fake_library();
    const gpu::ProductUse& use = library->use;
    EmulatedDevice device(std::make_unique<gpu::EmulatedCard>(EmulatedOrder{when}), std::move(library));
    EXPECT_EQ(gradient_on(device), expected);
    EXPECT_EQ(use.requested, 1);
    EXPECT_EQ(use.refused + use.refused_runs, 0);
  }
}

// First micro-steps and others, full and not: those that come again are captured, each for itself.
TEST(GpuDevice, a_graph_is_launched_only_where_what_the_host_decided_is_what_it_was_captured_with) {
  const std::vector<MicroStep> steps = {{kRows, true}, {kRows},       {kRows}, {3}, {kRows, true}, {kRows},
                                        {kRows, true}, {kRows, true}, {5},     {5}, {kRows},       {3, true}};
  EmulatedDevice plain(EmulatedOrder{When::at_once});
  const std::vector<float> expected = gradient_on(plain, steps);
  const std::vector<MicroStep> summed(steps.begin(), steps.end() - 1);
  EmulatedDevice longer(EmulatedOrder{When::at_once});
  const std::vector<float> before = gradient_on(longer, summed);
  EXPECT_NE(before, expected);
  for (const When when : {When::at_once, When::late, When::shuffled}) {
    for (const auto& [some, want] : {std::pair(steps, expected), std::pair(summed, before)}) {
      EmulatedDevice device(std::make_unique<gpu::EmulatedCard>(EmulatedOrder{when}), fake_library());
      EXPECT_EQ(gradient_on(device, some, 2), want);
      EXPECT_EQ(device.graph_use().graphs, 2);
      EXPECT_EQ(device.graph_use().nodes, 2);  // products that are added to where they are
    }
  }
}

TEST(GpuDevice, calls_are_captured_when_they_come_again_and_one_graph_serves_kernels_that_ask_the_card) {
  EmulatedDevice once;
  gradient_on(once, {{kRows, true}}, 2);
  EXPECT_EQ(once.graph_use().graphs, 0);
  EmulatedDevice own;
  const std::vector<MicroStep> steps = {{kRows, true}, {3}, {kRows}, {5, true}, {2}};
  EmulatedDevice plain;
  EXPECT_EQ(gradient_on(own, steps, 2), gradient_on(plain, steps));
  EXPECT_EQ(own.graph_use().graphs, 1);
}

// Has no room for a graph.
class FullCard : public gpu::EmulatedCard {
 public:
  FullCard() : EmulatedCard(EmulatedOrder{}) {}
  std::unique_ptr<gpu::CardGraph> end_capture() override { throw StoppedError("the card: no room"); }
};

TEST(GpuDevice, a_capture_that_fails_stops_the_run_each_time_and_nothing_takes_its_place) {
  EmulatedDevice device(std::make_unique<FullCard>());
  EXPECT_THROW(gradient_on(device, {{kRows, true}, {kRows}}, 1), StoppedError);
  EXPECT_THROW(gradient_on(device, {{kRows, true}, {kRows}}, 1), StoppedError);
  EmulatedDevice plain;
  EXPECT_EQ(gradient_on(device, {{kRows, true}, {kRows}}), gradient_on(plain, {{kRows, true}, {kRows}}));
}

// Knows when its ops are called what the host has sent for them.
class WatchfulDevice : public GpuDevice {
 public:
  WatchfulDevice() : GpuDevice(std::make_unique<gpu::EmulatedCard>(EmulatedOrder{When::at_once})) {}

  std::vector<double> seen;
  bool sees_others = false;

 protected:
  BoundCall bind_kernels(const Graph& graph, const Op& op, const AddressOf&, const Sent& sent,
                         gpu::Stream& stream) override {
    sees_others = sees_others || sent.of(graph.find("g")) != nullptr;
    return [this, &stream,
            step = reinterpret_cast<const double*>(sent.of(op.inputs[operand::linear_dw::step]))] {
      if (stream.only_loads()) return;
      seen.push_back(step[static_cast<size_t>(StepValue::live_tokens)]);
    };
  }
  void launch_sums(std::span<const std::byte>, int64_t, DType, std::byte*, gpu::Stream&) override {}
};

TEST(GpuDevice, an_op_that_is_called_finds_on_the_host_what_was_sent_for_it) {
  WatchfulDevice device;
  gradient_on(device);
  EXPECT_THAT(device.seen, testing::ElementsAre(8, 3, 5, 8));
  EXPECT_FALSE(device.sees_others);
}

// In every build: the message names what is missing, and where to compute instead.
TEST(CudaDevice, without_a_driver_is_refused_with_what_is_missing) {
  if (std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "a driver may be here";
  try {
    open_cuda_device(CardFacts{});
    FAIL() << "a card was opened";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), AnyOf(HasSubstr("no NVIDIA driver was found (libcuda.so.1)"),
                                    HasSubstr("this program was built without CUDA")));
    EXPECT_THAT(error.what(), HasSubstr("choose device: cpu (--device cpu)"));
  }
}

TEST(EmulatedOrder, is_read_from_the_environment_and_anything_else_is_refused) {
  const auto order = [](const char* text) {
    setenv("PLIMSOLL_EMULATED_ORDER", text, 1);
    const EmulatedOrder read = emulated_order();
    unsetenv("PLIMSOLL_EMULATED_ORDER");
    return read;
  };
  EXPECT_EQ(emulated_order().when, When::shuffled);
  EXPECT_EQ(order("late").when, When::late);
  EXPECT_EQ(order("at-once").when, When::at_once);
  EXPECT_EQ(order("17").seed, 17U);
  for (const char* text : {"", "often", "7x", "-1"}) EXPECT_THROW(order(text), UsageError) << text;
  unsetenv("PLIMSOLL_EMULATED_ORDER");
}

// As after a kernel's trap: the next call fails, and every later one.
TEST(GpuDevice, a_trap_stops_whatever_is_asked_next_and_names_the_op_where_each_is_waited_for) {
  for (const char* set : {"", "0", "1"}) {
    setenv("PLIMSOLL_CARD_WAITS", set, 1);
    const bool waits = std::string_view(set) == "1";
    auto card = std::make_unique<gpu::EmulatedCard>(EmulatedOrder{When::late});
    card->trap_at(5);
    EmulatedDevice device(std::move(card));
    unsetenv("PLIMSOLL_CARD_WAITS");
    EXPECT_EQ(device.makes_graphs(), !waits);
    try {
      total_on(device, "host");
      ADD_FAILURE() << "a trap went unnoticed";
    } catch (const gpu::CardFault& fault) {
      EXPECT_EQ(fault.code(), ExitCode::stopped);
      EXPECT_THAT(fault.what(), HasSubstr(waits ? "the GPU failed in add: unspecified launch failure"
                                                : "PLIMSOLL_CARD_WAITS=1"));
    }
    EXPECT_THROW(device.finish(), gpu::CardFault);
    std::array<std::byte, 4> bytes{};
    EXPECT_THROW(device.upload(nullptr, bytes), gpu::CardFault);
  }
}

TEST(EmulatedTrap, is_read_from_the_environment_and_anything_else_is_refused) {
  const auto trap = [](const char* text) {
    setenv("PLIMSOLL_EMULATED_TRAP", text, 1);
    const int64_t read = emulated_trap();
    unsetenv("PLIMSOLL_EMULATED_TRAP");
    return read;
  };
  EXPECT_EQ(emulated_trap(), 0);
  EXPECT_EQ(trap("17"), 17);
  for (const char* text : {"", "0", "-1", "add"}) EXPECT_THROW(trap(text), UsageError) << text;
  unsetenv("PLIMSOLL_EMULATED_TRAP");
}

// Before any step, by its op: more heads than a grid has blocks along y.
TEST(GpuDevice, a_grid_that_no_card_takes_is_refused_when_the_op_is_bound) {
  const Graph graph = parse_graph(
      "graph g\ntensor q f32[8,560000] input\ntensor k f32[8,8] input\ntensor v f32[8,8] input\n"
      "tensor starts i32[3] input\ntensor step f64[16] input\n"
      "o f32[8,560000], lse f32[8,70000] = attention(q, k, v, starts, step) "
      "{head_dim=8, length=8, window=0} @a forward\n");
  EmulatedDevice device;
  std::byte somewhere{};
  try {
    device.bind(graph, graph.ops().front(), [&](TensorId) { return &somewhere; });
    FAIL() << "it was bound";
  } catch (const UsageError& refused) {
    EXPECT_THAT(refused.what(), HasSubstr("2 x 70000 x 1 (o f32[8,560000], lse"));
    EXPECT_THAT(refused.what(), HasSubstr("batch.micro"));
  }
}

}  // namespace
}  // namespace plimsoll
