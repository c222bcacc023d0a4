#include "prepare/planned_card.h"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/own_process.h"
#include "base/printable.h"
#include "calibrate/card_cache.h"
#include "calibrate/rates_cache.h"
#include "gpu/cublas_lt.h"
#include "prepare/own_cards.h"
#include "runtime/cuda_device.h"
#include "runtime/emulated_device.h"

namespace plimsoll {
namespace {

using nlohmann::json;

struct Remembered {
  std::string which;
  std::optional<CardHere> card;
};
Remembered& remembered() {
  static Remembered one;
  return one;
}

json facts_json(const gpu::CudaFacts& facts) {
  return {{"number", facts.number},
          {"name", facts.name},
          {"uuid", facts.uuid},
          {"compute_capability", facts.card.compute_capability},
          {"multiprocessors", facts.card.multiprocessors},
          {"shared_bytes_per_block", facts.card.shared_bytes_per_block},
          {"memory_bytes", facts.memory_bytes},
          {"driver", facts.driver},
          {"library", facts.library}};
}

std::string ask_card(const std::string& which) {
  gpu::CudaFacts facts = gpu::cuda_facts(which);
  const auto card = gpu::open_cuda_card(which);
  const gpu::OpenedLibrary opened = gpu::open_cublas_lt(std::getenv);
  if (opened.library != nullptr) facts.library = opened.library->name();
  const OutsidePart code = code_part();
  const int64_t free = card->memory_left().free - code.bytes - code.uncertain;
  json told = facts_json(facts);
  told["free_bytes"] = std::max<int64_t>(0, free);
  return told.dump();
}

gpu::CudaFacts read_facts(const json& told) {
  gpu::CudaFacts facts;
  told.at("number").get_to(facts.number);
  told.at("name").get_to(facts.name);
  told.at("uuid").get_to(facts.uuid);
  told.at("compute_capability").get_to(facts.card.compute_capability);
  told.at("multiprocessors").get_to(facts.card.multiprocessors);
  told.at("shared_bytes_per_block").get_to(facts.card.shared_bytes_per_block);
  told.at("memory_bytes").get_to(facts.memory_bytes);
  told.at("driver").get_to(facts.driver);
  told.at("library").get_to(facts.library);
  return facts;
}

CardHere read_answer(const json& told) { return {read_facts(told), told.at("free_bytes").get<int64_t>()}; }

// Tests: CUDA's facts for a GPU that the driver's library names.
CardHere emulated_card(const std::string& which) {
  const std::vector<devices::Gpu>& gpus = own_cards().gpus;
  for (size_t i = 0; i < gpus.size(); ++i) {
    const devices::Gpu& gpu = gpus[i];
    if (!which.empty() && which != std::to_string(i) && !gpu.uuid.starts_with(which)) continue;
    if (!gpu.problem.empty())
      throw UsageError(formatted("device: cuda: {} (emulated) {}", gpu.name, gpu.problem));
    const Card card = find_card_of(gpu.name, gpu.total, "device: cuda");
    CardHere here;
    here.facts.number = static_cast<int>(i);
    here.facts.name = gpu.name;
    here.facts.uuid = gpu.uuid;
    here.facts.card = describe_card(card, false).card;
    here.facts.memory_bytes = gpu.total;
    here.facts.emulated = true;
    here.free_bytes = std::max<int64_t>(0, free_bytes(gpu) - outside_bytes(describe_card(card, false)));
    return here;
  }
  throw UsageError(formatted("device: cuda{}: there is no such card (they are emulated)",
                             which.empty() ? "" : ":" + which));
}

}  // namespace

const CardHere& card_here(const std::string& which) {
  Remembered& one = remembered();
  if (!one.card || one.which != which)
    one = {which, emulates_cards()
                      ? emulated_card(which)
                      : read_answer(json::parse(in_own_process([&] { return ask_card(which); })))};
  return *one.card;
}

gpu::CudaFacts card_facts(const std::string& which) {
  if (emulates_cards()) return emulated_card(which).facts;
  const auto ask = [&] { return facts_json(gpu::cuda_facts(which)).dump(); };
  return read_facts(json::parse(in_own_process(ask)));
}

std::string kernels_of(DeviceChoice device, const CpuSettings& cpu) {
  const bool is_real = device == DeviceChoice::cuda && !known_card_here()->facts.emulated;
  if (is_real) return cuda_kernels_text(known_card_here()->facts);
  return device == DeviceChoice::emulated || device == DeviceChoice::cuda ? emulated_kernels_text()
                                                                          : kernels_text(cpu);
}

std::string card_words(const gpu::CudaFacts& facts) {
  return printable(facts.name) + (facts.emulated ? " (emulated)" : "");
}

const CardHere* known_card_here() { return remembered().card ? &*remembered().card : nullptr; }

PlannedCard planned_card(const Recipe& recipe) {
  PlannedCard planned{find_card(*recipe.memory.gpu, "memory.gpu"), std::nullopt, "", false};
  const CardHere* const here = recipe.device == DeviceChoice::cuda ? known_card_here() : nullptr;
  planned.emulated = here != nullptr && here->facts.emulated;
  if (planned.emulated) return planned;
  const std::string uuid = here != nullptr ? here->facts.uuid : "";
  planned.measured = find_measured_card(full_name(planned.card), uuid, planned.note);
  if (here == nullptr || !planned.measured) return planned;
  const bool same_driver = planned.measured->driver == here->facts.driver;
  if (same_driver && planned.measured->kernels == cuda_code_text(here->facts)) return planned;
  planned.note =
      formatted("the card was measured with {}: a run, or `make gpu-check`, measures it with this one",
                same_driver ? formatted("other code ({})", planned.measured->kernels) : "another driver");
  planned.measured.reset();
  return planned;
}

std::string keep_measured(const MeasuredCard& card) {
  try {
    save_card(cache_folder(), card);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace plimsoll
