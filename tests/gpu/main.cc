// plimsoll_card_check: what a card does, asked of the parts that a run is made of. tests/gpu/check.py runs
// it and reads its lines (docs/explanation/cuda.md).
//
//   plimsoll_card_check PART [--device cuda|emulated] [--cases A,B] [--without A,B] [--from N] [--wrong WHAT]
//   [--bytes N]
//   [--small yes]
//
// PART is facts, calls, names (of the op cases), ops, large, memory, ranks, rates, or hold, which keeps so many
// bytes of the card until its input ends. Exit codes: 0, 1 where something was wrong, 2 without a card.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>

#include "base/error.h"
#include "base/strings.h"
#include "base/units.h"
#include "calibrate/card_cache.h"
#include "calibrate/rates_cache.h"
#include "card_calls.h"
#include "device/catalogue.h"
#include "gpu/cublas_lt.h"
#include "gpu/cuda_card.h"
#include "gpu/emulated_card.h"
#include "large_cases.h"
#include "nccl_calls.h"
#include "op_cases.h"
#include "rates.h"
#include "runtime/cuda_device.h"
#include "runtime/emulated_device.h"
#include "wrong_card.h"

namespace plimsoll::gpu_check {
namespace {

using nlohmann::ordered_json;

struct Options {
  std::string part;
  bool emulated = false;
  OpChoice ops;
  std::string wrong;  // what the card does wrong: of the emulated one alone
  int64_t bytes = 0;
  bool small = false;  // sizes of rates and of large cases
};

Options read_options(int count, char** words) {
  if (count < 2)
    throw UsageError(
        "plimsoll_card_check: say which part: facts, calls, names, ops, large, memory, ranks, rates or hold");
  Options options;
  options.part = words[1];
  std::map<std::string, std::string> values;
  for (int i = 2; i + 1 < count; i += 2) values[words[i]] = words[i + 1];
  if (count % 2 != 0) throw UsageError(std::string(words[count - 1]) + ": needs a value");
  for (const auto& [name, value] : values) {
    if (name == "--device" && (value == "cuda" || value == "emulated")) {
      options.emulated = value == "emulated";
    } else if (name == "--cases") {
      options.ops.named = split(value, ',');
    } else if (name == "--without") {
      options.ops.without = split(value, ',');
    } else if (name == "--from") {
      options.ops.from = std::stoi(value);
    } else if (name == "--bytes") {
      options.bytes = std::stoll(value);
    } else if (name == "--small") {
      options.small = value == "yes";
    } else if (name == "--wrong") {
      options.wrong = value;
    } else {
      throw UsageError(name + " " + value + ": no such option");
    }
  }
  if (!options.wrong.empty() && !options.emulated)
    throw UsageError("--wrong: only the emulated card does things wrong on purpose");
  return options;
}

std::unique_ptr<gpu::Card> open_card(const Options& options) {
  if (!options.emulated) return gpu::open_cuda_card();
  return open_wrong_card(options.wrong);
}

CardFacts facts_of(const Options& options) { return options.emulated ? CardFacts{} : gpu::cuda_facts().card; }

std::unique_ptr<Device> open_device(const Options& options) {
  if (!options.emulated) return open_cuda_device(facts_of(options));
  return std::make_unique<EmulatedDevice>(open_wrong_card(options.wrong));
}

ordered_json parts_json(const std::vector<OutsidePart>& parts) {
  ordered_json list = ordered_json::array();
  for (const OutsidePart& part : parts)
    list.push_back({{"name", part.name}, {"bytes", part.bytes}, {"uncertain", part.uncertain}});
  return list;
}

// Facts about the card, and about what a plan by its name knows of it.
ordered_json facts_json(const Options& options) {
  if (options.emulated) return {{"name", "emulated"}, {"uuid", nullptr}, {"planned", nullptr}};
  const gpu::CudaFacts facts = gpu::cuda_facts();
  ordered_json json = {{"name", facts.name},
                       {"uuid", facts.uuid},
                       {"driver", facts.driver},
                       {"compute_capability", facts.card.compute_capability},
                       {"multiprocessors", facts.card.multiprocessors},
                       {"shared_bytes_per_block", facts.card.shared_bytes_per_block},
                       {"memory_bytes", facts.memory_bytes},
                       {"products", open_device(options)->products()}};
  try {
    const Card card = find_card(facts.name, "the card");
    json["planned"] = {{"name", full_name(card)},
                       {"memory_bytes", card.memory_mib * kMiB},
                       {"compute_capability", card.compute_capability},
                       {"multiprocessors", card.multiprocessors},
                       {"outside", parts_json(outside_parts(card, true))}};
  } catch (const UsageError& unknown) {
    json["planned"] = nullptr;
    json["problem"] = unknown.what();
  }
  return json;
}

// Beside what is known of the card already. One that plans do not know of is measured for nobody.
void keep(MeasuredCard measured) {
  gpu::CudaFacts facts = gpu::cuda_facts();
  const gpu::OpenedLibrary opened = gpu::open_cublas_lt(std::getenv);
  if (opened.library != nullptr) facts.library = opened.library->name();
  try {
    measured.name = full_name(find_card(facts.name, "the card"));
  } catch (const UsageError&) {
    return;
  }
  measured.uuid = facts.uuid;
  measured.driver = facts.driver;
  measured.kernels = cuda_code_text(facts);
  save_card(cache_folder(), measured);
}

// Measures the memory of the card that is gone outside the arena: when every kernel is loaded, with an arena,
// and when every kernel has run.
bool check_memory(const Options& options, const Tell& tell) {
  const auto device = open_device(options);
  // Code is loaded when an op is bound.
  check_ops(*device, facts_of(options), options.ops, [](const Outcome&) {});
  const gpu::MemoryLeft first = *device->memory_left();
  const int64_t arena = options.bytes > 0 ? options.bytes : first.free / 2;
  Outcome outcome{"memory/beside the arena", "", {}};
  gpu::MemoryLeft mapped, used;
  {
    const auto memory = device->map(arena);
    mapped = *device->memory_left();
    int failed = 0;
    check_ops(*device, facts_of(options), options.ops,
              [&](const Outcome& op) { failed += op.detail.empty() ? 0 : 1; });
    used = *device->memory_left();
    if (memory->bytes() != arena) outcome.detail = "another size was asked of the driver than planned";
    if (failed > 0) outcome.detail = std::to_string(failed) + " ops failed beside an arena";
  }
  const gpu::MemoryLeft last = *device->memory_left();
  outcome.figures = {{"total_bytes", first.total},
                     {"at_start_bytes", first.total - first.free},
                     {"arena_bytes", arena},
                     {"taken_by_arena_bytes", first.free - mapped.free},
                     {"grown_by_kernels_bytes", mapped.free - used.free},
                     {"left_behind_bytes", first.free - last.free - (mapped.free - used.free)}};
  constexpr int64_t kPiece = 2 * kMiB;  // in which drivers give memory
  if (const int64_t taken = first.free - mapped.free; taken < arena || taken > arena + kPiece)
    outcome.detail = "an arena of " + std::to_string(arena) + " bytes took " + std::to_string(taken);
  if (mapped.free != used.free)
    outcome.detail = "kernels took " + std::to_string(mapped.free - used.free) +
                     " bytes when they first ran: the plan promises that nothing grows behind the start";
  tell(outcome);
  MeasuredCard measured;
  measured.memory_bytes = first.total;
  measured.process_bytes = first.total - first.free;
  if (!options.emulated && outcome.detail.empty()) keep(std::move(measured));
  return outcome.detail.empty();
}

// Measures its rates; plans of this machine go by them from then on.
void measure(const Options& options, const Tell& tell) {
  const auto device = open_device(options);
  MeasuredCard measured;
  const auto own = options.emulated ? nullptr : open_cuda_device(facts_of(options), "", Products::own);
  const Measured seen = measure_rates(*device, own.get(), facts_of(options), options.small, tell);
  measured.rates = seen.rates;
  measured.launch_seconds = seen.launch_seconds;
  if (!options.emulated && !options.small) keep(std::move(measured));
}

void hold(const Options& options) {
  const auto card = open_card(options);
  std::byte* const memory = card->allocate(options.bytes);
  std::cout << ordered_json{{"name", "hold"},
                            {"detail", ""},
                            {"figures", {{"free_bytes", card->memory_left().free}}}}
            << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
  }
  card->release(memory);
}

int run(int count, char** words) {
  Options options = read_options(count, words);
  if (options.wrong.starts_with("op:")) options.ops.wrong_op = std::exchange(options.wrong, "").substr(3);
  bool right = true;
  const Tell tell = [&](const Outcome& outcome) {
    right = right && outcome.detail.empty();
    std::cout << ordered_json{{"name", outcome.name},
                              {"detail", outcome.detail},
                              {"figures", outcome.figures}}
              << std::endl;
  };
  require_names(options.ops);
  if (options.part == "names") {
    for (const std::string& name : names_of_cases(options.ops)) std::cout << name << '\n';
    return 0;
  }
  if (!options.emulated) gpu::cuda_facts();  // first of all: whether there is a card
  if (options.part == "facts") {
    std::cout << facts_json(options) << std::endl;
  } else if (options.part == "calls") {
    check_calls([&] { return open_card(options); }, tell);
  } else if (options.part == "ops") {
    check_ops(*open_device(options), facts_of(options), options.ops, tell);
  } else if (options.part == "large") {
    check_large_cases(*open_device(options), facts_of(options), options.small, options.ops.wrong_op, tell);
  } else if (options.part == "memory") {
    check_memory(options, tell);
  } else if (options.part == "ranks") {
    const auto device = open_device(options);
    check_rank_sums(*device, tell);
    check_nccl(*device, options.emulated, tell);
  } else if (options.part == "rates") {
    measure(options, tell);
  } else if (options.part == "hold") {
    hold(options);
  } else {
    throw UsageError(options.part +
                     ": no such part; say facts, calls, names, ops, large, memory, ranks, rates or hold");
  }
  return right ? 0 : 1;
}

}  // namespace
}  // namespace plimsoll::gpu_check

int main(int count, char** words) {
  try {
    return plimsoll::gpu_check::run(count, words);
  } catch (const plimsoll::Error& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
