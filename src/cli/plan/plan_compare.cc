// plimsoll plan --compare: the same recipe with other values of some keys, side by side.
#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/outer_split.h"
#include "base/print.h"
#include "base/screen.h"
#include "base/strings.h"
#include "base/units.h"
#include "cli/plan/plan_command.h"
#include "prepare/allowed.h"
#include "recipe/effective.h"

namespace plimsoll {
namespace {

constexpr size_t kMostRows = 64;

struct Change {
  std::string name;   // as it was asked for: "micro_batch"
  std::string key;    // "batch.micro"
  std::string value;  // "8"
};

struct Choice {
  std::vector<Change> changes;
  std::string problem;  // why there is no plan, or empty
  std::optional<PlanInput> input;
  std::optional<Plan> plan;
  bool same_result = false;
  std::string difference;  // from the recipe as it stands
};

std::string key_of(const std::string& name) {
  static const std::map<std::string, const char*> kShort = {{"micro_batch", "batch.micro"},
                                                            {"effective_batch", "batch.effective"},
                                                            {"length", "data.max_length"},
                                                            {"method", "method.type"},
                                                            {"rank", "method.r"},
                                                            {"targets", "method.targets"},
                                                            {"optimizer", "optimizer.name"},
                                                            {"offload", "memory.offload"},
                                                            {"recompute", "memory.recompute"},
                                                            {"tier", "memory.tier"},
                                                            {"shard", "memory.shard"},
                                                            {"plan", "memory.plan"},
                                                            {"memory", "memory.device"},
                                                            {"gpu", "memory.gpu"},
                                                            {"disk", "memory.disk"},
                                                            {"loss_chunk", "memory.loss_chunk"},
                                                            {"clip", "optimizer.max_grad_norm"}};
  const auto found = kShort.find(name);
  return found == kShort.end() ? name : found->second;
}

// "states+gradients" is a list, where a comma would begin the next value.
std::string yaml_of(const std::string& value) {
  return value.find('+') == std::string::npos ? value : formatted("[{}]", join(split(value, '+'), ", "));
}

std::vector<Choice> rows_of(const std::vector<std::string>& requested) {
  std::vector<Choice> rows(1);
  for (const std::string& text : requested) {
    const size_t equals = text.find('=');
    if (equals == 0 || equals == std::string::npos || equals + 1 == text.size())
      throw UsageError(formatted("--compare: '{}' is not KEY=VALUE,VALUE, such as micro_batch=8,24", text));
    const std::string name = text.substr(0, equals);
    std::vector<Choice> longer;
    for (const Choice& row : rows) {
      for (const std::string& value : outer_split(std::string_view(text).substr(equals + 1), ",")) {
        longer.push_back(row);
        longer.back().changes.push_back({name, key_of(name), value});
      }
    }
    rows = std::move(longer);
    if (rows.size() > kMostRows)
      throw UsageError(formatted("--compare: more than {} combinations", kMostRows));
  }
  return rows;
}

std::string label_of(const Choice& row) {
  std::string text;
  for (const Change& change : row.changes) {
    const bool speaks_for_itself =
        change.key == "method.type" || change.key == "optimizer.name" || change.key == "precision";
    text += (text.empty() ? "" : ", ") + (speaks_for_itself ? "" : change.name + " ") + change.value;
  }
  return text;
}

// The effect of a changed key of the experiment on the result; empty where another key covers it already.
std::string difference_words(const ExperimentDifference& difference, bool other_method,
                             bool other_optimizer) {
  const std::string& key = difference.key;
  if (key == "method.type")
    return difference.b.find("qlora") != std::string::npos ? "other method, lossy base" : "other method";
  if (key == "optimizer.name")
    return difference.b.find("adamw8bit") != std::string::npos ? "lossy states" : "other optimizer";
  if (key.starts_with("method.") && other_method) return "";
  if (key.starts_with("optimizer.") && other_optimizer) return "";
  if (key == "data.max_length") return "other length";
  if (key == "batch.effective") return "other effective batch";
  return "other " + key;
}

void compare_results(const std::string& base, Choice& row) {
  const auto differences = experiment_differences(base, experiment_fingerprint(row.input->resolved.recipe));
  const auto differs = [&](const char* key) {
    return std::any_of(differences.begin(), differences.end(), [&](const auto& d) { return d.key == key; });
  };
  std::vector<std::string> words;
  for (const ExperimentDifference& difference : differences) {
    const std::string text = difference_words(difference, differs("method.type"), differs("optimizer.name"));
    if (!text.empty() && std::find(words.begin(), words.end(), text) == words.end()) words.push_back(text);
  }
  row.same_result = differences.empty();
  row.difference = join(words, ", ");
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// The fingerprint of the base of all rows. If each row has a device of its own, the recipe's memory keys may
// mean nothing on the recipe's device.
std::string base_fingerprint(const PlanArguments& arguments, const std::vector<Choice>& rows) {
  const bool own_devices = std::ranges::all_of(rows, [](const Choice& row) {
    return std::ranges::any_of(row.changes, [](const Change& change) {
      return change.key == "memory.gpu" || change.key == "device";
    });
  });
  const bool own_numbers =
      std::ranges::any_of(rows.front().changes, [](const Change& change) { return change.key == "devices"; });
  if (own_devices) return experiment_fingerprint(arguments.recipe.load().recipe);
  PlanArguments base = arguments;
  if (own_numbers) base.recipe.nodes = 1;  // of the rows, which may have more devices than the recipe
  return experiment_fingerprint(plan_of(base).input.resolved.recipe);
}

// All inputs first: a row that is not possible shows why.
void prepare(const PlanArguments& arguments, std::vector<Choice>& rows) {
  const std::string fingerprint = base_fingerprint(arguments, rows);
  for (Choice& row : rows) {
    Changes assumed;
    for (const Change& change : row.changes) assumed.push_back({change.key, yaml_of(change.value)});
    try {
      row.input = plan_input(arguments, assumed);
    } catch (const UsageError& error) {
      row.problem = first_line(error.what());
      for (const KeyChange& change : assumed)  // the row's label has it
        if (const std::string place = formatted("what if {}: ", change.assignment());
            row.problem.starts_with(place))
          row.problem.erase(0, place.size());
      continue;
    }
    compare_results(fingerprint, row);
  }
}

int64_t devices_of(const Plan& plan) { return plan.request.workload.experiment.ranks; }

std::string verdict(const Choice& row) {
  const std::string result = row.same_result ? "yes" : row.difference;
  if (row.plan->fits()) return result;
  const int64_t sharing = row.plan->request.target.own_memory ? 1 : devices_of(*row.plan);
  const std::string what = !row.plan->fits_device() || !row.plan->fits_process()
                               ? format_bytes(sharing * memory_budget(row.plan->request).value_or(0))
                           : !row.plan->fits_host() ? "the host"
                                                    : "the disk";
  return formatted("{}; does not fit {}", result, what);
}

std::string seconds_of(const Plan& plan) { return plan.fits() ? format_seconds(plan.seconds_per_step) : "-"; }

// The words below the table: why a row has no plan, or that a stated stage is another one there.
std::string words_of(const Choice& row) {
  if (!row.plan) return row.problem;
  for (const RecipeNote& note : row.plan->request.notes)
    if (note.key == kShardKey) return note.text;
  return "";
}

// Each of these once, behind all rows that have it.
std::string problems_text(const std::vector<Choice>& rows) {
  std::vector<std::pair<std::string, std::string>> labels;  // by problem, in the order of the rows
  for (const Choice& row : rows) {
    const std::string words = words_of(row);
    if (words.empty()) continue;
    const auto known =
        std::find_if(labels.begin(), labels.end(), [&](const auto& one) { return one.first == words; });
    if (known == labels.end())
      labels.emplace_back(words, label_of(row));
    else
      known->second += "; " + label_of(row);
  }
  std::string text;
  for (const auto& [problem, having] : labels) text += formatted("  {}: {}\n", having, problem);
  return text;
}

std::string summary(const std::vector<Choice>& rows, size_t columns) {
  const bool disk = std::any_of(rows.begin(), rows.end(),
                                [](const Choice& row) { return row.plan && row.plan->disk_bytes() > 0; });
  const bool own = std::any_of(rows.begin(), rows.end(), [](const Choice& row) {
    return row.plan && row.plan->request.target.own_memory;
  });
  // The memory that a tier frees goes to larger micro-batches: the fastest plan does not show how little it
  // could run with.
  const bool tiers = std::any_of(rows.begin(), rows.end(), [](const Choice& row) {
    return std::any_of(row.changes.begin(), row.changes.end(),
                       [](const Change& change) { return change.key == "memory.tier"; });
  });
  // Processes of several devices share a budget.
  const bool several = std::any_of(rows.begin(), rows.end(),
                                   [](const Choice& row) { return row.plan && devices_of(*row.plan) > 1; });
  std::vector<std::string> head = {""};
  if (own)
    head.insert(head.end(), {"device GiB", "host GiB"});
  else
    head.emplace_back("process GiB");
  if (several) head.insert(head.end(), {"all GiB", "sent GiB"});
  if (tiers) head.insert(head.begin() + 2, "least GiB");
  if (disk) head.emplace_back("disk GiB");
  head.insert(head.end(), {"s/step", "same result?"});
  std::vector<bool> right(head.size(), true);
  right.front() = right.back() = false;
  TextTable table(right);
  table.add_row(head);
  bool unfit = false;
  for (const Choice& row : rows) {
    if (!row.plan) continue;
    std::vector<std::string> cells = {label_of(row)};
    if (own)
      cells.insert(cells.end(), {format_gib(row.plan->memory_bytes()), format_gib(row.plan->host_bytes())});
    else
      cells.push_back(format_gib(row.plan->process_peak_bytes()));
    if (several)
      cells.insert(cells.end(), {format_gib(row.plan->bytes_together()), format_gib(row.plan->sent_bytes)});
    if (tiers)
      cells.insert(cells.begin() + 2, format_gib(memory_bytes(row.plan->request, row.plan->smallest)));
    if (disk) cells.push_back(format_gib(row.plan->disk_bytes()));
    cells.insert(cells.end(), {seconds_of(*row.plan), verdict(row)});
    table.add_row(cells);
    unfit = unfit || !row.plan->fits();
  }
  std::string text = table.render("  ", columns);
  if (tiers) text += "  (least: what the row can do with, in more time; --memory SIZE gives it that)\n";
  if (unfit) text += "  (of what does not fit, the variant with the least memory)\n";
  return text + fitted(problems_text(rows), columns);
}

std::string variants(const std::vector<Choice>& rows, size_t columns) {
  size_t width = 0;
  for (const Choice& row : rows) width = std::max(width, label_of(row).size());
  width = std::min(width, columns / 3);
  const std::string indent(width + 4, ' ');
  std::string text;
  for (const Choice& row : rows) {
    if (!row.plan) continue;
    const std::string label = label_of(row);
    text += formatted(
        "  {}{}{}\n", label,
        label.size() > width ? "\n" + indent : std::string(width + 2 - label.size(), ' '),
        wrap(variant_words(row.plan->request.workload.experiment, row.plan->variant), indent, columns));
  }
  return text;
}

int64_t bytes_of(const std::vector<Component>& components, const std::string& name) {
  for (const Component& component : components)
    if (component.name == name) return component.bytes;
  return 0;
}

std::string change_text(int64_t bytes) {
  if (bytes == 0) return "same";
  return (bytes > 0 ? "+" : "") + format_bytes(bytes);
}

void add_growth(TextTable& table, const char* head, std::vector<Component> a, std::vector<Component> b) {
  std::vector<std::string> names;
  int64_t total_a = 0;
  int64_t total_b = 0;
  for (const Component& component : a) names.push_back(component.name), total_a += component.bytes;
  for (const Component& component : b) {
    total_b += component.bytes;
    if (std::find(names.begin(), names.end(), component.name) == names.end()) names.push_back(component.name);
  }
  table.add_row({head});
  for (const std::string& name : names)
    table.add_row({"  " + name, format_bytes(bytes_of(a, name)), format_bytes(bytes_of(b, name)),
                   change_text(bytes_of(b, name) - bytes_of(a, name))});
  table.add_row({"  total", format_bytes(total_a), format_bytes(total_b), change_text(total_b - total_a)});
}

// The growth from one plan to the other: component by component.
std::string growth(const Choice& a, const Choice& b, size_t columns) {
  TextTable table({false, true, true, true});
  table.add_row({"what changes", label_of(a), label_of(b), "difference"});
  add_growth(table, "device, at the peak", device_components(*a.plan), device_components(*b.plan));
  add_growth(table, "host", a.plan->host_components(), b.plan->host_components());
  return table.render("  ", columns);
}

// If the change is not possible with the other keys, the row shows the reason.
void plan_row(Choice& row) try {
  if (row.input)
    row.plan = plan_lossless(row.input->resolved, row.input->machine, row.input->data.get()).plan;
} catch (const Error& error) {
  if (error.code() == ExitCode::internal) throw;
  row.problem = first_line(error.what());
}

nlohmann::ordered_json json_of(const Choice& row) {
  using Json = nlohmann::ordered_json;
  Json changes = Json::object();
  for (const Change& change : row.changes) changes[change.key] = change.value;
  if (!row.plan) return {{"set", changes}, {"problem", row.problem}};
  const auto components = [](const std::vector<Component>& list) {
    Json json = Json::object();
    for (const Component& component : list) json[component.name] = component.bytes;
    return json;
  };
  return {{"set", changes},
          {"feasible", row.plan->fits()},
          {"memory_bytes", row.plan->memory_bytes()},
          {"least_bytes", memory_bytes(row.plan->request, row.plan->smallest)},
          {"device_bytes", row.plan->arena_bytes()},
          {"host_bytes", row.plan->host_bytes()},
          {"disk_bytes", row.plan->disk_bytes()},
          {"devices", devices_of(*row.plan)},
          {"bytes_together", row.plan->bytes_together()},
          {"sent_bytes_per_step", row.plan->sent_bytes},
          {"seconds_per_step", row.plan->seconds_per_step},
          {"tokens_per_second", row.plan->tokens_per_second()},
          {"same_result", row.same_result},
          {"difference", row.difference},
          {"shard", to_string(row.plan->request.workload.experiment.optimizer.shard)},
          {"note", words_of(row)},
          {"variant", variant_words(row.plan->request.workload.experiment, row.plan->variant)},
          {"device_components", components(device_components(*row.plan))},
          {"host_components", components(row.plan->host_components())}};
}

}  // namespace

ExitCode run_compare(const PlanArguments& arguments) {
  std::vector<Choice> rows = rows_of(arguments.compare);
  prepare(arguments, rows);
  for (Choice& row : rows) plan_row(row);
  if (std::none_of(rows.begin(), rows.end(), [](const Choice& row) { return row.plan.has_value(); }))
    throw UsageError(formatted("--compare: {}: {}", label_of(rows.front()), rows.front().problem));
  std::string text;
  if (arguments.json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const Choice& row : rows) list.push_back(json_of(row));
    text = json_text(nlohmann::ordered_json{{"rows", list}});
  } else {
    const size_t columns = std::min<size_t>(output_columns(), 100);
    text = formatted("{}\n{}", summary(rows, columns), variants(rows, columns));
    if (rows.size() == 2 && rows[0].plan && rows[1].plan) text += "\n" + growth(rows[0], rows[1], columns);
  }
  print(text);
  return ExitCode::ok;
}

}  // namespace plimsoll
