#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/format.h"
#include "base/printable.h"
#include "base/screen.h"
#include "base/strings.h"
#include "base/units.h"
#include "fleet/devices/gpu.h"
#include "fleet/top/frame.h"
#include "fleet/top/progress.h"

namespace plimsoll::top {
namespace {

std::string bytes_or(const std::optional<int64_t>& bytes) { return bytes ? format_bytes(*bytes) : "-"; }

std::string one_decimal(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

std::string step_cell(const RunStatus& run) {
  if (!run.progress) return "-";
  return format_count(run.progress->step) +
         (run.progress->steps > 0 ? "/" + format_count(run.progress->steps) : "");
}

std::string host_line(const Frame& frame) {
  int64_t of_runs = 0;
  for (const RunStatus& run : frame.runs) of_runs += run.used.value_or(0);
  const int64_t others = std::max<int64_t>(0, frame.memory - frame.available - of_runs);
  std::string text = formatted(
      "host {}: runs {}, others {}, available {}{}; load {}", format_bytes(frame.memory),
      format_bytes(of_runs), format_bytes(others), format_bytes(frame.available),
      frame.swap.total > 0
          ? formatted(", swap {} of {} in use", format_bytes(frame.swap.used), format_bytes(frame.swap.total))
          : "",
      one_decimal(frame.load));
  if (!frame.pressure.empty()) text += "; waited in the last 10 s:";
  for (const auto& [kind, share] : frame.pressure) text += formatted(" {} {} %", kind, one_decimal(share));
  return text;
}

std::string state_line(const Frame& frame) {
  std::string text = frame.worker ? "worker runs" : "no worker runs: plimsoll queue run starts what waits";
  if (frame.draining) text += ", draining";
  if (frame.paused) text += ", paused";
  return text;
}

std::vector<std::string> short_names(std::vector<std::string> names) {
  for (std::string& name : names) name = devices::short_name(name);
  return names;
}

// Bytes that the driver reports, or "unknown"; "-" where no driver is asked.
std::string told(const DeviceStatus& device, const std::optional<int64_t>& bytes) {
  return bytes ? format_bytes(*bytes) : device.memory ? "unknown" : "-";
}

std::string card_text(const DeviceStatus& device) {
  if (!device.problem.empty()) return printable(device.problem) + "; nothing new starts there";
  std::string text = printable(device.model);
  if (device.memory) text += ", " + format_bytes(*device.memory);
  if (device.busy_percent) text += formatted(", {} % busy", *device.busy_percent);
  return text;
}

// The note that needs a person's attention first.
std::string note_text(const RunStatus& run) {
  if (run.growth) return growth_text(run);
  const int64_t on_card = std::max(run.used_on_card.value_or(0), run.peak_on_card.value_or(0));
  if (run.state == "running" && run.device_count > 0 && on_card > run.device_bytes)
    return formatted("took {} on a card, more than it reserved", format_bytes(on_card));
  const std::string ranks = ranks_text(run);
  return ranks + (ranks.empty() || run.note.empty() ? "" : "; ") + run.note;
}

std::vector<std::string> run_cells(const RunStatus& run) {
  const std::optional<double> left = seconds_left(run);
  std::string planned = format_bytes(run.reserved);
  if (run.device_bytes > 0)
    planned = formatted("{} x {} + {}", run.device_count, format_bytes(run.device_bytes), planned);
  const auto with_card = [](const std::optional<int64_t>& host, const std::optional<int64_t>& card) {
    return card ? formatted("{} + {}", format_bytes(*card), bytes_or(host)) : bytes_or(host);
  };
  return {std::to_string(run.id),
          printable(run.name),
          run.state,
          run.devices.empty() ? "-" : printable(join(short_names(run.devices), ",")),
          planned,
          with_card(run.used, run.used_on_card),
          with_card(run.peak, run.peak_on_card),
          run.cores ? one_decimal(*run.cores) : "-",
          step_cell(run),
          run.progress && run.progress->step_seconds ? format_seconds(*run.progress->step_seconds) : "-",
          left ? format_seconds(*left) : "-",
          loss_words(run.progress ? run.progress->loss : std::nullopt),
          loss_words(run.progress ? run.progress->best_loss : std::nullopt),
          printable(note_text(run))};
}

}  // namespace

std::string ranks_text(const RunStatus& run) {
  constexpr double kWorthSaying = 0.1;  // as of the lines of train
  if (run.state != "running" || !run.progress || run.progress->ranks <= 1) return "";
  const Progress& progress = *run.progress;
  std::string text = formatted("{} ranks", format_count(progress.ranks));
  const char* separator = ": ";
  const auto add = [&](const std::string& part) {
    text += separator + part;
    separator = ", ";
  };
  if (run.processes.largest) add("largest " + format_bytes(*run.processes.largest));
  if (progress.waiting_share)
    add(formatted("waiting {} %", std::to_string(std::lround(100 * *progress.waiting_share))));
  if (progress.slowest && progress.slower.value_or(0) >= kWorthSaying)
    add(formatted("slowest rank {} (+{} %)", *progress.slowest, std::lround(100 * *progress.slower)));
  return text;
}

std::string growth_text(const RunStatus& run) {
  if (!run.growth) return "";
  std::string text = formatted("grows by {} a minute", format_bytes(static_cast<int64_t>(*run.growth * 60)));
  if (run.used && run.device_bytes == 0 && run.reserved > 0) {
    const double left = static_cast<double>(run.reserved - *run.used) / *run.growth;
    text += left <= 0 ? ": beyond its reservation" : ": beyond its reservation in " + format_seconds(left);
  }
  return text;
}

std::optional<double> seconds_left(const RunStatus& run) {
  if (run.state != "running" || !run.progress || run.progress->steps <= 0) return std::nullopt;
  const auto& step = run.progress->step_seconds ? run.progress->step_seconds : run.progress->planned_seconds;
  if (!step) return std::nullopt;
  return std::max(0.0, *step * static_cast<double>(run.progress->steps - run.progress->step));
}

std::optional<int64_t> free_bytes(const DeviceStatus& device) {
  if (!device.problem.empty()) return std::nullopt;
  int64_t taken = std::max(device.reserved, device.memory ? device.used.value_or(0) : 0);
  if (device.others) taken += *device.others;
  // If the owner of memory is not known, what is in use beyond the reservations counts as others'.
  if (!device.others && device.memory_used) taken = std::max(taken, *device.memory_used);
  return std::max<int64_t>(0, device.capacity - taken);
}

std::string frame_heading(const Frame& frame, size_t columns) {
  TextTable table({false, true, true, true, true, true, true, true, false});
  table.add_row({"device", "capacity", "reserved", "used", "others", "free", "threads", "runs", ""});
  for (const DeviceStatus& one : frame.devices)
    table.add_row({printable(devices::short_name(one.name)), format_bytes(one.capacity),
                   format_bytes(one.reserved), told(one, one.used), told(one, one.others),
                   bytes_or(free_bytes(one)),
                   one.threads > 0 ? formatted("{}/{}", one.threads_reserved, one.threads) : "-",
                   std::to_string(one.runs), card_text(one)});
  table.may_go({6, 4, 7, 3, 8});
  return formatted("{}\n{}", fitted(formatted("{}\n{}", host_line(frame), state_line(frame)), columns),
                   table.render("  ", columns));
}

std::string runs_text(const std::vector<const RunStatus*>& runs, size_t columns) {
  TextTable table({true, false, false, false, true, true, true, true, true, true, true, true, true, false});
  table.add_row({"id", "name", "state", "device", "planned", "used", "peak", "cpu", "step", "s/step", "left",
                 "loss", "eval", "note"});
  // The columns that a narrow screen misses least go first; the step, how long it takes and the note stay.
  table.may_go({7, 6, 3, 4, 5, 11, 12, 2});
  table.cut_texts();
  for (const RunStatus* one : runs) table.add_row(run_cells(*one));
  return table.render("  ", columns);
}

std::string foreign_text(const Frame& frame, size_t columns) {
  TextTable table({true, false, true, true}), cards({true, false, false, true});
  table.add_row({"pid", "others", "resident", "cpu"});
  for (const Foreign& one : frame.foreign)
    table.add_row({std::to_string(one.pid), printable(one.name), format_bytes(one.bytes),
                   one.cores ? one_decimal(*one.cores) : "-"});
  cards.add_row({"pid", "others", "on", "used there"});
  table.cut_texts();
  cards.cut_texts();
  bool on_cards = false;
  for (const DeviceStatus& device : frame.devices)
    for (const CardProcess& one : device.processes) {
      cards.add_row({std::to_string(one.pid), one.name.empty() ? "?" : printable(one.name),
                     printable(devices::short_name(device.name)),
                     one.bytes ? format_bytes(*one.bytes) : "unknown"});
      on_cards = true;
    }
  return (on_cards ? "\n" + cards.render("  ", columns) : "") +
         (frame.foreign.empty() ? "" : "\n" + table.render("  ", columns));
}

std::string frame_text(const Frame& frame, size_t columns) {
  std::vector<const RunStatus*> runs;
  for (const RunStatus& one : frame.runs) runs.push_back(&one);
  const std::string list = runs.empty() ? formatted("  {}\n", kQueueIsEmpty) : runs_text(runs, columns);
  return formatted("{}\n{}{}", frame_heading(frame, columns), list, foreign_text(frame, columns));
}

}  // namespace plimsoll::top
