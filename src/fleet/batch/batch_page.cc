// A batch as one HTML file: lanes of devices over time, and what the host gave.
#include <algorithm>
#include <cstdio>
#include <map>

#include "base/format.h"
#include "base/page.h"
#include "base/strings.h"
#include "base/units.h"
#include "fleet/batch/batch.h"
#include "fleet/top/progress.h"

namespace plimsoll::batch {
namespace {

using page::escaped;
using page::percent;

constexpr const char* kStyle = R"css(
.chart{height:200px;margin-top:16px}
.chart svg{overflow:visible}
.chart path{stroke:var(--hue);stroke-width:1.5;fill:var(--hue);fill-opacity:.18;vector-effect:non-scaling-stroke}
.lane{position:relative;margin-left:68px;border-left:1px solid var(--line);border-bottom:1px solid var(--line)}
.run{position:absolute;height:18px;min-width:3px;border-radius:3px;background:#0072b2;color:#fff;font-size:11px;line-height:18px;
overflow:hidden;white-space:nowrap;text-indent:4px;box-sizing:border-box}
.run.failed{background:#d55e00}.run.open{background:#009e73}
.axis{display:flex;justify-content:space-between;margin-left:68px;font-size:12px;color:var(--soft);padding-top:3px}
.legend{font-size:13px;color:var(--soft)}.legend b{display:inline-block;width:10px;height:10px;margin:0 4px 0 12px;border-radius:2px}
td,th{font-variant-numeric:tabular-nums}
)css";

double place(const Batch& batch, double time) {
  return (time - batch.begin) / std::max(batch.end - batch.begin, 1e-9);
}

std::string facts_of(const Bar& bar) {
  std::string text = formatted("{} {}{}: {}, reserved {}", bar.id, bar.name,
                               bar.number > 1 ? ", attempt " + std::to_string(bar.number) : "",
                               format_seconds(bar.ended - bar.started), format_bytes(bar.need.host_bytes));
  if (bar.need.devices > 0) text += formatted(" and {} on each device", format_bytes(bar.need.device_bytes));
  if (bar.peak_bytes > 0) text += ", peak " + format_bytes(bar.peak_bytes);
  if (bar.card_peak_bytes > 0) text += ", on a device " + format_bytes(bar.card_peak_bytes);
  return text + (bar.running ? ", running" : "; " + bar.outcome);
}

// Runs that overlap lie in rows of their own.
std::string lane(const Batch& batch, const std::string& device) {
  constexpr int kRow = 22;
  std::vector<double> free_from;
  std::string runs;
  for (const Bar& bar : batch.bars) {
    if (std::find(bar.devices.begin(), bar.devices.end(), device) == bar.devices.end()) continue;
    const auto row =
        std::find_if(free_from.begin(), free_from.end(), [&](double until) { return until <= bar.started; });
    const auto at = static_cast<int>(row - free_from.begin());
    if (row == free_from.end()) free_from.push_back(0);
    free_from[static_cast<size_t>(at)] = bar.ended;
    runs += formatted("<div class=\"run{}\" style=\"left:{};width:{};top:{}px\" title=\"{}\">{}</div>\n",
                      bar.running ? " open"
                      : bar.done  ? ""
                                  : " failed",
                      percent(place(batch, bar.started)),
                      percent(place(batch, bar.ended) - place(batch, bar.started)), at * kRow + 2,
                      escaped(facts_of(bar)), escaped(formatted("{} {}", bar.id, bar.name)));
  }
  const int rows = std::max(1, static_cast<int>(free_from.size()));
  return formatted("<h2>{}</h2>\n<div class=\"lane\" style=\"height:{}px\">\n{}</div>\n", escaped(device),
                   rows * kRow + 2, runs);
}

std::string time_axis(const Batch& batch) {
  const double span = batch.end - batch.begin;
  return formatted("<div class=\"axis\"><span>0</span><span>{}</span><span>{}</span></div>\n",
                   format_seconds(span / 2), format_seconds(span));
}

// Bytes over time as an area in a box of 1000 x 1000 units.
std::string area(const std::vector<int64_t>& bytes, double top, const char* hue) {
  std::string path = "M0 1000";
  char point[64];
  for (size_t i = 0; i < bytes.size(); ++i) {
    const double height = 1000 - 1000 * std::min(1.0, static_cast<double>(bytes[i]) / top);
    for (const size_t end : {i, i + 1}) {
      const double x = 1000 * static_cast<double>(end) / static_cast<double>(bytes.size());
      std::snprintf(point, sizeof point, "L%.1f %.1f", x, height);
      path += point;
    }
  }
  return formatted("<path style=\"--hue:{}\" d=\"{}L1000 1000Z\"/>", hue, path);
}

std::string host_chart(const Batch& batch) {
  constexpr size_t kTimes = 400;
  const Course course = course_of(batch, kTimes);
  int64_t top = std::max<int64_t>(batch.machine.host_bytes, 1);
  for (const int64_t one : course.used) top = std::max(top, one);
  const double height = 1.05 * static_cast<double>(top);
  std::string html =
      "<h2>Memory of the host</h2>\n<div class=\"legend\"><b style=\"background:#0072b2\"></b>reserved"
      "<b style=\"background:#d55e00\"></b>used</div>\n<div class=\"chart\">";
  const int64_t step = page::tick_bytes(top);
  for (int64_t i = 0; i <= top / step; ++i)
    html += page::tick(static_cast<double>(i * step) / height, i == 0 ? "0" : format_bytes(i * step));
  html += formatted("<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\">{}{}</svg>",
                    area(course.reserved, height, "#0072b2"), area(course.used, height, "#d55e00"));
  html += formatted("<div class=\"limit\" style=\"bottom:{}\"><span>{}</span></div>",
                    percent(static_cast<double>(batch.machine.host_bytes) / height),
                    escaped(format_bytes(batch.machine.host_bytes) + " for all runs"));
  return formatted("{}</div>\n{}", html, time_axis(batch));
}

std::string table(const Batch& batch) {
  std::string html =
      "<h2>Attempts</h2>\n<table><tr><th>id</th><th>name</th><th>device</th><th>took</th><th>reserved</th>"
      "<th>peak</th><th>on a device</th><th>peak there</th><th>loss</th><th>eval</th><th>outcome</th></tr>\n";
  for (const Bar& bar : batch.bars)
    html += formatted(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>"
        "<td>{}</td><td>{}</td><td>{}</td></tr>\n",
        bar.id, escaped(bar.name), escaped(join(bar.devices, ", ")), format_seconds(bar.ended - bar.started),
        format_bytes(bar.need.host_bytes), known_bytes(bar.peak_bytes), known_bytes(bar.need.device_bytes),
        known_bytes(bar.card_peak_bytes), top::loss_words(bar.loss), top::loss_words(bar.eval_loss),
        escaped(bar.running ? "running" : bar.outcome));
  return html + "</table>\n";
}

// The order of the runs, the best one first.
std::string ranks(const Batch& batch) {
  const std::vector<const Bar*> bars = ranked(batch);
  if (bars.empty()) return "";
  std::string html =
      "<h2>Losses, the best first</h2>\n<table><tr><th>id</th><th>name</th><th>eval</th><th>loss</th></tr>\n";
  for (const Bar* bar : bars)
    html += formatted("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n", bar->id, escaped(bar->name),
                      top::loss_words(bar->eval_loss), top::loss_words(bar->loss));
  return html + "</table>\n";
}

}  // namespace

std::string batch_page(const Batch& batch) {
  std::string html = page::head("Queue", kStyle);
  if (batch.bars.empty()) return formatted("{}<p>Nothing has run yet.</p>\n{}", html, page::end("{}", ""));
  html += formatted("<p>{} runs, {} attempts: {} done, {} failed, {} open; {} in all.</p>\n", batch.runs,
                    batch.bars.size(), batch.done, batch.failed, batch.open,
                    format_seconds(batch.end - batch.begin));
  html += host_chart(batch);
  html += lane(batch, batch.machine.host);
  for (const queue::MachineCard& card : batch.machine.cards) html += lane(batch, card.name);
  html += time_axis(batch) + ranks(batch) + table(batch);
  return html + page::end("{}", "");
}

}  // namespace plimsoll::batch
