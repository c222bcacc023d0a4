#include "advise/fit.h"

#include <algorithm>
#include <array>

#include "base/format.h"
#include "base/strings.h"
#include "base/units.h"
#include "prepare/allowed.h"

namespace plimsoll {
namespace {

constexpr int64_t kMostLengths = 16;
constexpr int64_t kLongest = int64_t{1} << 24;

void take(const Plan& plan, FitCell& cell) {
  cell.fits = plan.fits();
  cell.fits_memory = plan.fits_device() && plan.fits_process();
  cell.memory_bytes = plan.memory_bytes();
  cell.host_bytes = plan.host_bytes();
  cell.disk_bytes = plan.disk_bytes();
  cell.tokens_per_second = plan.tokens_per_second();
  cell.seconds_per_step = plan.seconds_per_step;
  cell.variant = variant_words(plan.request.workload.experiment, plan.variant);
}

}  // namespace

FitCell fit_cell(const WhatIf& what_if, const std::string& method, int64_t length,
                 const std::optional<int64_t>& longest, const FitCell* shorter) {
  FitCell cell;
  cell.method = method;
  cell.length = length;
  if (longest && length > *longest) {
    cell.beyond = true;
    cell.why_not = formatted("the model knows {} positions", format_count(*longest));
    return cell;
  }
  try {
    const PlanInput input = what_if({{"method.type", method}, {"data.max_length", std::to_string(length)}});
    const auto measured = std::make_shared<KnownModels>();
    const auto take_fitting = [&] {
      const auto plan = fitting_allowed(input.resolved, input.machine, input.data.get(), measured);
      if (plan) take(*plan, cell);
      return plan.has_value();
    };
    const bool hopeless = shorter != nullptr && shorter->why_not.empty() && !shorter->fits;
    if (!hopeless && take_fitting()) return cell;
    PlanRequest least = input.request;
    least.choices.preset = Preset::least;
    least.measured = measured;
    take(make_plan(least), cell);
    if (hopeless && cell.fits) take_fitting();
  } catch (const UsageError& error) {  // as 4 bits for odd widths
    cell.why_not = error.what();
  }
  return cell;
}

std::string first_choice(const std::vector<FitCell>& cells) {
  struct Choice {
    std::string method;
    int64_t lengths = 0;
    double speed = 0;
  } best;
  std::vector<Choice> choices;
  for (const FitCell& cell : cells) {
    if (!cell.fits) continue;
    const auto same = std::find_if(choices.begin(), choices.end(),
                                   [&](const Choice& choice) { return choice.method == cell.method; });
    if (same == choices.end())
      choices.push_back({cell.method, 1, cell.tokens_per_second});
    else
      ++same->lengths;
  }
  for (const Choice& choice : choices)
    if (choice.lengths > best.lengths || (choice.lengths == best.lengths && choice.speed > best.speed))
      best = choice;
  return best.method;
}

std::vector<int64_t> read_lengths(const std::string& text, const std::string& what) {
  std::vector<int64_t> lengths;
  for (const std::string& part : split(text, ',')) {
    const std::string word(trim(part));
    const bool digits =
        !word.empty() && word.size() <= 9 && word.find_first_not_of("0123456789") == std::string::npos;
    const int64_t length = digits ? std::stoll(word) : 0;
    if (length < 1 || length > kLongest)
      throw UsageError(
          formatted("{}: '{}' is not a length in tokens; write lengths as 512,2048,8192", what, word));
    lengths.push_back(length);
  }
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  if (static_cast<int64_t>(lengths.size()) > kMostLengths)
    throw UsageError(formatted("{}: {} lengths are more than the {} that a screen takes", what,
                               lengths.size(), kMostLengths));
  return lengths;
}

std::vector<std::string> read_methods(const std::string& text, const std::string& what) {
  static constexpr std::array<std::string_view, 3> kMethods = {"qlora", "lora", "full"};
  std::vector<std::string> methods;
  for (const std::string& part : split(text, ',')) {
    const std::string word(trim(part));
    if (std::find(kMethods.begin(), kMethods.end(), word) == kMethods.end())
      throw UsageError(formatted("{}: '{}' is not one of qlora, lora, full", what, word));
    if (std::find(methods.begin(), methods.end(), word) == methods.end()) methods.push_back(word);
  }
  return methods;
}

}  // namespace plimsoll
