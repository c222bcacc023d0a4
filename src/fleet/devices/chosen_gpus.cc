#include "fleet/devices/chosen_gpus.h"

#include <algorithm>
#include <cstdlib>

#include "base/environment.h"
#include "base/error.h"
#include "base/format.h"
#include "base/printable.h"

namespace plimsoll::devices {
namespace {

bool names_number(const std::string& name) {
  return name.find_first_not_of("0123456789") == std::string::npos;
}

// In words behind its name; empty: it can be used.
std::string why_unusable(const Gpu& gpu) {
  if (!gpu.problem.empty()) return printable(gpu.problem);
  if (gpu.mig) return "is cut into instances (MIG)";
  return gpu.uuid.empty() ? "does not say its UUID" : "";
}

}  // namespace

std::string kind_of(const Gpu& gpu) { return printable(model_of(gpu)); }

ChosenGpus of_one_kind(const ChosenGpus& gpus) {
  ChosenGpus most;
  for (const Gpu* of : gpus) {
    ChosenGpus alike;
    for (const Gpu* gpu : gpus)
      if (kind_of(*gpu) == kind_of(*of)) alike.push_back(gpu);
    if (alike.size() > most.size()) most = alike;
  }
  return most;
}

std::string GpuChoice::number_of(const Gpu& gpu) const { return formatted("cuda:{}", &gpu - gpus_.data()); }

std::string GpuChoice::words_of(const Gpu& gpu) const {
  return formatted("{} ({}, {})", number_of(gpu), kind_of(gpu), printable(short_name(gpu.uuid)));
}

std::string GpuChoice::list_of(const ChosenGpus& gpus) const {
  std::string text;
  for (const Gpu* gpu : gpus) text += formatted("{}{}", text.empty() ? "" : ", ", words_of(*gpu));
  return text;
}

std::string GpuChoice::numbers_of(const ChosenGpus& gpus) const {
  std::string text;
  for (const Gpu* gpu : gpus) text += formatted("{}{}", text.empty() ? "" : ",", number_of(*gpu));
  return text;
}

ChosenGpus GpuChoice::all() const {
  ChosenGpus all;
  for (const Gpu& gpu : gpus_) all.push_back(&gpu);
  return all;
}

ChosenGpus GpuChoice::usable() const {
  ChosenGpus usable;
  for (const Gpu& gpu : gpus_)
    if (why_unusable(gpu).empty()) usable.push_back(&gpu);
  return usable;
}

void GpuChoice::refuse_unknown(const std::string& name) const {
  throw UsageError(formatted("devices: {} is no card that this process may use; {}",
                             names_number(name) ? "cuda:" + name : printable(name),
                             gpus_.empty()
                                 ? "this machine shows no card: use --devices N --device cpu"
                                 : formatted("there are {}: name some of these, such as --devices {}",
                                             list_of(all()), number_of(gpus_.front()))));
}

// As CUDA numbers cards: where they differ, its order is not the driver's.
void GpuChoice::require_order(const std::string& name) const {
  const bool differ =
      std::ranges::any_of(gpus_, [&](const Gpu& gpu) { return kind_of(gpu) != kind_of(gpus_.front()); });
  if (!differ || environment("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" ||
      std::getenv("CUDA_VISIBLE_DEVICES") != nullptr)
    return;
  throw UsageError(formatted(
      "devices: which card is cuda:{} depends on CUDA_DEVICE_ORDER, as the cards differ: name cards by "
      "UUID, such as --devices cuda:{}, or set CUDA_DEVICE_ORDER=PCI_BUS_ID",
      name, printable(short_name(gpus_.front().uuid))));
}

const Gpu& GpuChoice::find(const std::string& name) const {
  if (names_number(name)) {
    const size_t number = std::stoul(name);
    if (number >= gpus_.size()) refuse_unknown(name);
    require_order(name);
    return gpus_[number];
  }
  const Gpu* found = nullptr;
  for (const Gpu& gpu : gpus_) {
    if (!gpu.uuid.starts_with(name)) continue;
    if (found != nullptr)
      throw UsageError(formatted("devices: {} is the beginning of two UUIDs, of {} and {}; write more of it",
                                 printable(name), words_of(*found), words_of(gpu)));
    found = &gpu;
  }
  if (found == nullptr) refuse_unknown(name);
  return *found;
}

ChosenGpus GpuChoice::named(const std::vector<std::string>& names) const {
  ChosenGpus named;
  for (const std::string& name : names) {
    const Gpu& gpu = find(name);
    if (std::ranges::find(named, &gpu) != named.end())
      throw UsageError(formatted(
          "devices: {} is named twice; name each card once, a process computes on each", words_of(gpu)));
    if (const std::string problem = why_unusable(gpu); !problem.empty())
      throw UsageError(formatted("devices: {} {}; leave it out", words_of(gpu), problem));
    named.push_back(&gpu);
  }
  return named;
}

ChosenGpus GpuChoice::first(int64_t count) const {
  const ChosenGpus usable = this->usable();
  if (std::ssize(usable) >= count) return {usable.begin(), usable.begin() + count};
  throw UsageError(formatted(
      "devices: {} processes need a card each, and this machine has {} that can be used{}{}; use {}, or --device cpu",
      count, usable.size(), usable.empty() ? "" : ": " + list_of(usable),
      problem_.empty() ? "" : formatted(" ({})", printable(problem_)),
      usable.size() > 1 ? formatted("--devices {}", usable.size()) : "--devices 1"));
}

void GpuChoice::refuse_two_kinds(const Gpu& one, const Gpu& other, const std::string& why_not_one,
                                 const std::string& why_not_other) const {
  const std::string& reason = why_not_one.empty() ? why_not_other : why_not_one;
  const ChosenGpus alike = of_one_kind(usable());
  throw UsageError(formatted(
      "devices: {} and {} are cards of two kinds, and the processes of a run need cards of one: {}{}{}",
      words_of(one), words_of(other),
      alike.size() > 1 ? "such as --devices " + numbers_of(alike) : "use --devices 1",
      reason.empty() ? "" : "\n  ", reason));
}

}  // namespace plimsoll::devices
