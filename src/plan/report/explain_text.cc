// An explanation as text and as JSON.
#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/printable.h"
#include "base/screen.h"
#include "base/strings.h"
#include "base/units.h"
#include "plan/report/explain.h"
#include "plan/report/report_parts.h"

namespace plimsoll {
namespace {

constexpr size_t kKinds = 12;  // shown; the others are summed up

std::string times(double growth) {
  constexpr double kNothing = 0.005;
  if (std::fabs(growth - 1.0) < kNothing) return "-";
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "x%.2f", growth);
  return text.data();
}

std::string meanings(const char* head, const std::vector<ExplainedComponent>& components, size_t columns) {
  TextTable table({false, true});
  table.add_row({head});
  for (const ExplainedComponent& one : components)
    table.add_row({one.component.name, format_bytes(one.component.bytes), one.meaning});
  return table.render("  ", columns);
}

// The growth with some of the dimensions.
std::string growth_of(const Explanation& explanation, size_t first, size_t end, size_t columns) {
  std::vector<bool> right(end - first + 1, true);
  right.front() = false;
  TextTable table(right);
  const auto at = [](const auto& list, size_t i) { return list.begin() + static_cast<std::ptrdiff_t>(i); };
  std::vector<std::string> head = {"grows with, when doubled"};
  head.insert(head.end(), at(explanation.doubled, first), at(explanation.doubled, end));
  table.add_row(head);
  for (const auto* list : {&explanation.device, &explanation.host}) {
    for (const ExplainedComponent& one : *list) {
      std::vector<std::string> cells = {one.component.name};
      for (size_t i = first; i < end; ++i) cells.push_back(times(one.growth[i]));
      const bool grows = std::any_of(cells.begin() + 1, cells.end(), [](const auto& c) { return c != "-"; });
      if (grows) table.add_row(cells);
    }
  }
  return table.render("  ", columns);
}

// Dimensions that do not fit next to each other follow in a table of their own.
std::string growth_table(const Explanation& explanation, size_t columns) {
  constexpr size_t kNames = 32, kEach = 13;  // columns: of the components, and of a dimension
  const size_t at_once = columns >= 100 ? explanation.doubled.size()
                                        : std::max<size_t>(2, (columns - std::min(columns, kNames)) / kEach);
  std::string text;
  for (size_t first = 0; first < explanation.doubled.size(); first += at_once)
    text += (first > 0 ? "\n" : "") +
            growth_of(explanation, first, std::min(first + at_once, explanation.doubled.size()), columns);
  return text + "  (at the peak, which may move to another op)\n";
}

std::string name_of(const LayerGroup& group) {
  if (group.last < group.first) return "outside of them";
  if (group.last == group.first) return formatted("{} {}", group.kind, group.first);
  return formatted("each of {}s {} to {}", group.kind, group.first, group.last);
}

std::string layer_table(const Explanation& explanation, size_t columns) {
  TextTable table({false, true, true, true});
  table.add_row(
      {"by layer", "weights", "gradients and states", columns < 70 ? "at the peak" : "alive at the peak"});
  for (const LayerGroup& group : explanation.layers)
    table.add_row({name_of(group), format_bytes(group.weights), format_bytes(group.training),
                   format_bytes(group.activations)});
  return table.render("  ", columns);
}

std::string kind_table(const Explanation& explanation, size_t columns) {
  TextTable table({false, true, true});
  table.add_row({"alive at the peak, by kind of tensor", "count", "all of them"});
  int64_t count = 0;
  int64_t bytes = 0;
  for (size_t i = 0; i < explanation.kinds.size(); ++i) {
    const TensorKind& kind = explanation.kinds[i];
    if (i < kKinds) {
      table.add_row({kind.name, format_count(kind.count), format_bytes(kind.bytes)});
      continue;
    }
    count += kind.count;
    bytes += kind.bytes;
  }
  if (count > 0) table.add_row({"others", format_count(count), format_bytes(bytes)});
  return table.render("  ", columns);
}

std::string scores_text(const Plan& plan, const Explanation& explanation) {
  if (explanation.scores_bytes == 0)
    return "  there are no attention scores: each head carries a state of constant size along its "
           "sequence.\n";
  const Experiment& experiment = plan.request.workload.experiment;
  const std::string length = format_count(experiment.max_length);
  return formatted(
      "  attention scores are not stored: attention is computed block by block. Stored, they "
      "would take {} a layer, {} in all ({} sequences x {} heads x {} x {}, {}).\n",
      format_bytes(explanation.scores_bytes),
      format_bytes(explanation.scores_bytes * experiment.model.attending_layers()),
      format_count(plan.variant.micro_batch), format_count(experiment.model.heads), length, length,
      to_string(experiment.precision.compute));
}

nlohmann::ordered_json components_json(const Explanation& explanation,
                                       const std::vector<ExplainedComponent>& components) {
  auto list = nlohmann::ordered_json::array();
  for (const ExplainedComponent& one : components) {
    auto growth = nlohmann::ordered_json::object();
    for (size_t i = 0; i < one.growth.size(); ++i) growth[explanation.doubled[i]] = one.growth[i];
    list.push_back({{"name", one.component.name},
                    {"bytes", one.component.bytes},
                    {"meaning", one.meaning},
                    {"when_doubled", growth}});
  }
  return list;
}

}  // namespace

std::string explain_text(const Plan& plan, const Explanation& explanation, size_t columns) {
  const std::string head =
      formatted("{}\n\n  {}\n  {}\n  {}\n\n", verdict_text(plan), model_text(plan), experiment_text(plan),
                variant_words(plan.request.workload.experiment, plan.variant));
  return formatted("{}{}\n{}\n{}\n{}\n{}\n{}", fitted(head, columns),
                   meanings("device", explanation.device, columns),
                   meanings("host", explanation.host, columns), growth_table(explanation, columns),
                   layer_table(explanation, columns), kind_table(explanation, columns),
                   fitted(scores_text(plan, explanation), columns));
}

std::string explain_json(const Plan& plan, const Explanation& explanation) {
  using Json = nlohmann::ordered_json;
  Json layers = Json::array();
  for (const LayerGroup& group : explanation.layers) {
    const bool outside = group.last < group.first;
    layers.push_back({{"kind", outside ? Json(nullptr) : Json(group.kind)},
                      {"first", outside ? Json(nullptr) : Json(group.first)},
                      {"last", outside ? Json(nullptr) : Json(group.last)},
                      {"weights_bytes", group.weights},
                      {"gradients_and_states_bytes", group.training},
                      {"alive_at_peak_bytes", group.activations}});
  }
  Json kinds = Json::array();
  for (const TensorKind& kind : explanation.kinds)
    kinds.push_back({{"name", kind.name}, {"count", kind.count}, {"bytes", kind.bytes}});
  const Json json = {{"device", components_json(explanation, explanation.device)},
                     {"host", components_json(explanation, explanation.host)},
                     {"layers", layers},
                     {"kinds", kinds},
                     {"attention_scores",
                      {{"stored_bytes", 0},
                       {"would_take_bytes", explanation.scores_bytes *
                                                plan.request.workload.experiment.model.attending_layers()}}}};
  return json_text(json);
}

}  // namespace plimsoll
