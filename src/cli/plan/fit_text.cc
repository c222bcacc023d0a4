#include "cli/plan/fit_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/printable.h"
#include "base/screen.h"
#include "base/shell_word.h"
#include "base/units.h"
#include "recipe/hub.h"

namespace plimsoll {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMargin = 8;   // of the methods' names
constexpr size_t kWide = 23;    // " 5.08 GiB 310,603 tok/s"
constexpr size_t kNarrow = 18;  // " no: host 24.0 GiB"

std::string speed_cell(double speed) {
  const std::string number = speed >= 999'999.5 ? format_number("%.2f M", speed / 1e6)
                             : speed >= 100     ? format_count(static_cast<int64_t>(speed + 0.5))
                             : speed >= 10      ? format_number("%.0f", speed)
                             : speed >= 1       ? format_number("%.1f", speed)
                                                : format_number("%.2g", speed);
  return number + " tok/s";
}

std::string bytes_cell(const FitCell& cell) {
  if (cell.beyond) return "-";
  if (!cell.why_not.empty()) return "not possible";
  if (cell.fits) return format_bytes(cell.memory_bytes);
  return cell.fits_memory ? "no: host " + format_bytes_up(cell.host_bytes)
                          : "no: " + format_bytes_up(cell.memory_bytes);
}

std::string flush_right(const std::string& text, size_t width) {
  return std::string(width - std::min(width, columns_of(text)), ' ') + text;
}

std::string without_trailing_blanks(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string budget_words(const FitDevice& device) {
  std::string words = device.memory_bytes ? format_bytes(*device.memory_bytes) : "any amount of memory";
  if (!device.own_memory) return words;
  return words + (device.host_bytes ? ", host " + format_bytes(*device.host_bytes)
                                    : ", any amount of host memory (--host-memory)");
}

Json optional_bytes(const std::optional<int64_t>& bytes) { return bytes ? Json(*bytes) : Json(); }

Json cell_json(const FitCell& cell) {
  Json json = {{"method", cell.method}, {"length", cell.length}, {"fits", cell.fits}};
  json["why_not"] = cell.why_not.empty() ? Json() : Json(cell.why_not);
  if (!cell.why_not.empty()) return json;
  json["memory_bytes"] = cell.memory_bytes;
  json["host_bytes"] = cell.host_bytes;
  json["disk_bytes"] = cell.disk_bytes;
  json["seconds_per_step"] = cell.fits ? Json(cell.seconds_per_step) : Json();
  json["tokens_per_second"] = cell.fits ? Json(cell.tokens_per_second) : Json();
  json["variant"] = cell.variant;
  return json;
}

Json device_json(const FitDevice& device) {
  Json json = {{"device", device.words},
               {"kind", device.is_card ? "gpu" : "cpu"},
               {"problem", device.problem.empty() ? Json() : Json(device.problem)},
               {"budget_bytes", optional_bytes(device.memory_bytes)},
               {"host_budget_bytes", device.own_memory ? optional_bytes(device.host_bytes) : Json()},
               {"precision", device.precision},
               {"fits", device.fits()},
               {"cells", Json::array()}};
  for (const FitCell& cell : device.cells) json["cells"].push_back(cell_json(cell));
  return json;
}

// The least of what does not fit.
std::string least_words(const FitDevice& device) {
  const FitCell* least = nullptr;
  for (const FitCell& cell : device.cells)
    if (cell.why_not.empty() && (least == nullptr || cell.memory_bytes < least->memory_bytes)) least = &cell;
  if (least == nullptr) return "";
  return formatted(
      "  nothing of it fits: {} at {} tokens takes {}{}\n", least->method, format_count(least->length),
      format_bytes_up(least->memory_bytes),
      device.own_memory ? formatted(" and {} of host memory", format_bytes_up(least->host_bytes)) : "");
}

// A line on the host that the cells take where no budget bounds them.
std::string host_words(const FitDevice& device) {
  if (!device.own_memory || device.host_bytes) return "";
  int64_t most = 0;
  for (const FitCell& cell : device.cells)
    if (cell.fits) most = std::max(most, cell.host_bytes);
  return most > 0 ? formatted("  what fits takes up to {} of host memory\n", format_bytes_up(most)) : "";
}

// Lines under a table on what it does not show.
std::string cell_notes(const FitModel& model, const FitDevice& device) {
  std::string text, impossible;
  bool beyond = false;
  for (const FitCell& cell : device.cells) {
    beyond = beyond || cell.beyond;
    if (impossible.empty() && !cell.beyond) impossible = cell.why_not;
  }
  if (beyond)
    text +=
        formatted("  -: longer than the model's {} positions\n", format_count(*model.spec.longest_text()));
  if (!impossible.empty()) text += formatted("  not possible: {}\n", printable(impossible));
  return text;
}

}  // namespace

bool FitDevice::fits() const {
  return std::any_of(cells.begin(), cells.end(), [](const FitCell& cell) { return cell.fits; });
}

std::string fit_model_text(const FitModel& model, size_t columns) {
  std::string text = formatted("{}   {} B parameters{}\n", printable(model.name),
                               format_number("%.2f", static_cast<double>(model.parameters) / 1e9),
                               model.task == "sft" ? "" : "   task: " + model.task);
  if (model.known && model.known->is_built_in)
    text += formatted(
        "  its shape is that of the built-in catalogue ({}); a config.json of your own decides "
        "instead\n",
        source_words(*model.known->named.shape));
  if (model.known && !model.known->differing.empty())
    text += formatted("  note: {}\n", printable(difference_words(model.known->differing)));
  return fitted(text, columns);
}

std::string fit_device_text(const FitDevice& device, size_t columns) {
  const std::string text =
      device.problem.empty()
          ? formatted("\n{}: {}, {}\n", device.words, budget_words(device), device.precision)
          : formatted("\n{}: {}\n", device.words, printable(device.problem));
  return fitted(text, columns);
}

FitLayout fit_layout(size_t lengths, size_t columns) {
  FitLayout layout{kWide, lengths, false};
  if (kMargin + lengths * kWide <= columns) return layout;
  layout = {kNarrow, std::max<size_t>((columns - kMargin) / kNarrow, 1), true};
  layout.across = std::min(layout.across, lengths);
  return layout;
}

std::string fit_head_text(const std::vector<int64_t>& lengths, const FitLayout& layout) {
  std::string line(kMargin, ' ');
  for (const int64_t length : lengths) line += flush_right(format_count(length) + " tokens", layout.width);
  return without_trailing_blanks(line);
}

std::string fit_row_text(const std::string& method, const std::vector<FitCell>& cells,
                         const FitLayout& layout) {
  std::string line = "  " + method, below(kMargin, ' ');
  line.resize(std::max(line.size(), kMargin), ' ');
  for (const FitCell& cell : cells) {
    const std::string speed = cell.fits ? speed_cell(cell.tokens_per_second) : "";
    const bool joined = !layout.two_lines && !speed.empty();
    line += flush_right(bytes_cell(cell) + (joined ? " " + speed : ""), layout.width);
    below += flush_right(speed, layout.width);
  }
  const bool has_below = layout.two_lines && below.find_first_not_of(' ') != std::string::npos;
  return without_trailing_blanks(line) + (has_below ? without_trailing_blanks(below) : "");
}

std::string fit_foot_text(const FitModel& model, const FitDevice& device, size_t columns) {
  std::string text = fitted(cell_notes(model, device) + host_words(device), columns);
  const std::string method = first_choice(device.cells);
  if (method.empty()) return text + fitted(least_words(device), columns);
  const std::string name = quoted(model.name);
  text += formatted("  the longest that fit:\n    plimsoll plan {} --method {} --max length\n  start here:\n",
                    device.plan_words, method);
  if (model.known && model.known->is_built_in)
    text += formatted("    {}\n", download_command(HubKind::model, model.name));
  return formatted("{}    plimsoll init {} rows.jsonl --method {}\n{}", text, name, method,
                   fitted(formatted("  {}\n", device.speeds), columns));
}

Json fit_json(const FitModel& model, const std::vector<FitDevice>& devices) {
  const bool built_in = model.known && model.known->is_built_in;
  Json json = {{"model", model.name},
               {"parameters", model.parameters},
               {"task", model.task},
               {"shape", built_in ? "catalogue" : "config.json"},
               {"source", built_in ? Json(model.known->named.shape->source) : Json()},
               {"differs", Json::array()},
               {"fits", std::any_of(devices.begin(), devices.end(),
                                    [](const FitDevice& device) { return device.fits(); })},
               {"devices", Json::array()}};
  if (model.known)
    for (const ConfigDifference& one : model.known->differing)
      json["differs"].push_back({{"key", one.key}, {"config", one.config}, {"catalogue", one.catalogue}});
  for (const FitDevice& device : devices) json["devices"].push_back(device_json(device));
  return json;
}

}  // namespace plimsoll
