// A run as one HTML file.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/page.h"
#include "base/units.h"
#include "report/curve.h"
#include "report/page_assets.h"
#include "report/report.h"
#include "tasks/task.h"

namespace plimsoll {
namespace {

using Json = nlohmann::ordered_json;
using page::escaped;
using page::percent;

constexpr size_t kPoints = 800;  // of a curve: more are not seen, and the page stays small
constexpr size_t kEvents = 200;  // marks and rows of the table
constexpr const char* kEvaluationColour = "#d55e00";

// One chart: a value of every step, how it is named and written.
struct Quantity {
  const char* name;
  const char* colour;  // after Okabe and Ito
  std::function<double(const StepPoint&)> value;
  std::function<std::string(double)> words;
  bool from_zero = true;
};

std::string real_words(double value, const char* format) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

std::string loss_words(double value) {
  const bool large = std::abs(value) >= 1e4 && std::abs(value) < 1e9;
  return large ? format_count(std::llround(value)) : real_words(value, "%.4g");
}

const Quantity kLoss = {"loss", "#0072b2", [](const StepPoint& p) { return p.loss; }, loss_words, false};
const Quantity kRate = {"learning rate", "#009e73", [](const StepPoint& p) { return p.learning_rate; },
                        [](double value) { return real_words(value, "%.3g"); }};
const Quantity kSpeed = {"speed", "#b06fd0", [](const StepPoint& p) { return p.tokens_per_second(); },
                         [](double value) { return format_count(std::llround(value)); }};
const Quantity kMemory = {
    "memory of the process", "#d55e00",
    [](const StepPoint& p) { return p.rss > 0 ? static_cast<double>(p.rss) : std::nan(""); },
    [](double value) { return format_bytes(std::llround(value)); }};

std::vector<int64_t> steps_of(const RunHistory& run) {
  std::vector<int64_t> steps;
  for (const StepPoint& point : run.steps) steps.push_back(point.step);
  return steps;
}

std::vector<double> values_of(const RunHistory& run, const Quantity& quantity) {
  std::vector<double> values;
  for (const StepPoint& point : run.steps) values.push_back(quantity.value(point));
  return values;
}

Axis steps_axis(const RunHistory& run) {
  Axis axis;
  if (!run.steps.empty()) {
    axis.first_step = run.steps.front().step;
    axis.last_step = run.steps.back().step;
  }
  return axis;
}

// Room for nearly all values and `also`: a loss that explodes at the end does not flatten what was before.
void fit_height(std::vector<double> values, const std::vector<double>& also, bool from_zero, Axis& axis) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  std::sort(values.begin(), values.end());
  std::vector<double> ends = also;
  if (!values.empty()) {
    ends.push_back(values.front());
    const double nearly_all = values[values.size() * 98 / 100];
    const double spread = nearly_all - values.front();
    ends.push_back(std::min(values.back(), nearly_all + 0.5 * spread + 1e-12));
  }
  std::erase_if(ends, [](double value) { return !std::isfinite(value); });
  if (ends.empty()) return;
  const auto [low, high] = std::minmax_element(ends.begin(), ends.end());
  double margin = 0.06 * (*high - (from_zero ? 0.0 : *low));
  if (*high - *low < 1e-6 * std::abs(*high)) margin = 0.1 * std::abs(*high);  // one value all along
  if (margin <= 0) margin = 1;
  axis.low = from_zero ? 0.0 : *low - margin;
  axis.high = *high + margin;
}

std::string ticks(const Axis& axis, const Quantity& quantity) {
  constexpr int kMost = 16;  // a log may hold any numbers: steps that vanish next to them, or none at all
  const bool bytes = &quantity == &kMemory;
  const double step = bytes ? static_cast<double>(page::tick_bytes(std::llround(axis.high)))
                            : page::tick_step(axis.high - axis.low);
  std::string html;
  double value = std::ceil(axis.low / step) * step;
  for (int i = 0; i < kMost && value <= axis.high; ++i, value += step)
    html += page::tick(axis.y(value), std::abs(value) < step / 2 ? "0" : quantity.words(value));
  return html + "\n";
}

std::string line(const std::vector<int64_t>& steps, const std::vector<double>& values, const Axis& axis,
                 const char* style) {
  return formatted("<path class=\"{}\" d=\"{}\"/>", style, path_of(make_curve(steps, values, kPoints), axis));
}

std::string dot(int64_t step, double value, const Axis& axis, const char* colour, const std::string& words) {
  return formatted("<div class=\"dot\" style=\"left:{};bottom:{};background:{}\" title=\"{}\"></div>",
                   percent(std::clamp(axis.x(step), 0.0, 1.0)), percent(axis.y(value)), colour, words);
}

std::string marks(const RunHistory& run, const Axis& axis) {
  std::string html;
  for (const RunEvent& event : run.events)
    if (event.kind == "resume" || event.kind == "stop")
      html += formatted("<div class=\"mark\" style=\"left:{}\" title=\"{}\"></div>",
                        percent(std::clamp(axis.x(event.step), 0.0, 1.0)), escaped(event_words(event)));
  return html;
}

std::string limit_line(double value, const std::string& words, const Axis& axis) {
  return formatted("<div class=\"limit\" style=\"bottom:{}\"><span>{}</span></div>", percent(axis.y(value)),
                   escaped(words));
}

std::string axis_labels(const Axis& axis) {
  if (axis.first_step == axis.last_step)
    return formatted("<div class=\"axis\"><span></span><span>step {}</span><span></span></div>\n",
                     format_count(axis.first_step));
  const int64_t middle = (axis.first_step + axis.last_step) / 2;
  return formatted("<div class=\"axis\"><span>step {}</span><span>{}</span><span>{}</span></div>\n",
                   format_count(axis.first_step), format_count(middle), format_count(axis.last_step));
}

std::string chart(const RunHistory& run, const Quantity& quantity, const std::string& note) {
  const auto steps = steps_of(run);
  const auto values = values_of(run, quantity);
  Axis axis = steps_axis(run);
  std::vector<double> also;
  const bool is_loss = &quantity == &kLoss;
  if (is_loss)
    for (const EvalPoint& point : run.evaluations) also.push_back(point.loss);
  if (&quantity == &kMemory) also.push_back(static_cast<double>(run.planned_process_bytes));
  fit_height(values, also, quantity.from_zero, axis);
  const bool noisy = is_loss || &quantity == &kSpeed;
  std::string html = formatted(
      "<h2>{}<small>{}</small></h2>\n<div class=\"chart\" tabindex=\"0\" style=\"--hue:{}\">{}<svg "
      "viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{} "
      "over the steps\">{}",
      quantity.name, escaped(note), quantity.colour, ticks(axis, quantity), quantity.name,
      line(steps, values, axis, noisy ? "faint" : ""));
  if (noisy) {
    const size_t reach = std::max(steps.size() / 100, std::min<size_t>(steps.size() / 20, 4));
    html += line(steps, smoothed(values, reach), axis, "");
  }
  html += "</svg>" + marks(run, axis);
  if (steps.size() == 1 && std::isfinite(values[0]))  // which is no line
    html += dot(steps[0], values[0], axis, quantity.colour, quantity.words(values[0]));
  if (is_loss)
    for (const EvalPoint& point : run.evaluations)
      if (std::isfinite(point.loss))
        html +=
            dot(point.step, point.loss, axis, kEvaluationColour,
                formatted("evaluation {} at step {}", quantity.words(point.loss), format_count(point.step)));
  if (&quantity == &kMemory && run.planned_process_bytes > 0)
    html += limit_line(static_cast<double>(run.planned_process_bytes),
                       "planned " + format_bytes(run.planned_process_bytes), axis);
  return formatted("{}<div class=\"cursor\"></div></div>\n{}", html, axis_labels(axis));
}

std::string readout() {
  std::string html = "<div class=\"readout\">";
  for (const char* name : {"step", "loss", "lr", "tokens/s", "process"})
    html += formatted("<span>{} <b></b></span>", name);
  return html + "</div>\n";
}

// The readout's values for the steps that the curves show.
std::string data(const RunHistory& run) {
  const Axis axis = steps_axis(run);
  Json points = Json::array();
  const size_t each = std::max<size_t>(1, (run.steps.size() + kPoints - 1) / kPoints);
  for (size_t i = std::min(each, std::max<size_t>(run.steps.size(), 1)) - 1; i < run.steps.size();
       i += each) {
    const StepPoint& point = run.steps[i];
    Json words = {point.step};
    for (const Quantity* quantity : {&kLoss, &kRate, &kSpeed, &kMemory}) {
      const double value = quantity->value(point);
      words.push_back(std::isfinite(value) ? quantity->words(value) : "none");
    }
    points.push_back(std::move(words));
  }
  return Json{{"first", axis.first_step}, {"last", axis.last_step}, {"points", points}}.dump();
}

std::string events(const RunHistory& run) {
  std::string html = "<h2>events</h2><ul class=\"events\">\n";
  const size_t skipped = run.events.size() - std::min(kEvents, run.events.size());
  if (skipped > 0)
    html += formatted("<li><span>{} earlier ones</span></li>\n", format_count(static_cast<int64_t>(skipped)));
  for (size_t i = skipped; i < run.events.size(); ++i) {
    const RunEvent& event = run.events[i];
    html += formatted("<li><span>{}</span><span class=\"step\">step {}</span><b>{}</b></li>\n",
                      clock_words(event.time), format_count(event.step), escaped(event_words(event)));
  }
  return html + "</ul>\n";
}

// The metrics of evaluations other than the loss, the latest ones; "" without such metrics.
std::string evaluations(const RunHistory& run) {
  if (run.evaluations.empty() || run.evaluations.back().metrics.empty()) return "";
  const auto cell = [](const std::string& text) { return formatted("<td class=\"n\">{}</td>", text); };
  std::string html = "<h2>evaluations</h2><table><tr><th>step</th><th class=\"n\">loss</th>";
  for (const auto& metric : run.evaluations.back().metrics)
    html += formatted("<th class=\"n\">{}</th>", escaped(metric.first));
  html += "</tr>\n";
  for (size_t i = run.evaluations.size() - std::min(kEvents, run.evaluations.size());
       i < run.evaluations.size(); ++i) {
    const EvalPoint& point = run.evaluations[i];
    html += formatted("<tr><td>{}</td>{}", format_count(point.step), cell(kLoss.words(point.loss)));
    for (const auto& metric : run.evaluations.back().metrics) {
      const double value = point.value(metric.first);
      html += cell(std::isfinite(value) ? kLoss.words(value) : "–");
    }
    html += "</tr>\n";
  }
  return html + "</table>\n";
}

std::string table(const RunHistory& run) {
  const auto row = [](const char* name, const std::string& planned, const std::string& measured) {
    return formatted("<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n", name, planned,
                     measured);
  };
  const auto bytes = [](int64_t value) { return value > 0 ? format_bytes(value) : std::string("–"); };
  return formatted(
      "<h2>planned and measured</h2><table><tr><th></th><th class=\"n\">planned</th><th "
      "class=\"n\">measured</th></tr>\n{}{}{}</table>\n",
      row("process, at most", bytes(run.planned_process_bytes), bytes(largest_rss(run))),
      row("arena", bytes(run.planned_device_bytes), bytes(run.measured_device_bytes)),
      row("a step", run.planned_seconds_per_step > 0 ? format_seconds(run.planned_seconds_per_step) : "–",
          run.steps.empty() ? "–" : format_seconds(median_seconds(run))));
}

std::string verdict(const RunHistory& run) {
  const bool bad = run.state == RunState::stopped || run.state == RunState::killed;
  std::string text = formatted("<p class=\"verdict{}\"><b>{}</b> · {}{}{}", bad ? " bad" : "",
                               state_words(run), format_count(run.last_step()),
                               run.total_steps > 0 ? " of " + format_count(run.total_steps) : "",
                               std::max(run.total_steps, run.last_step()) == 1 ? " step" : " steps");
  if (!run.end_reason.empty()) text += " · " + escaped(run.end_reason);
  if (!run.steps.empty() && std::isfinite(run.steps.back().loss))
    text += " · loss " + kLoss.words(run.steps.back().loss);
  if (const auto best = best_evaluation(run, run.goal))
    text +=
        formatted(" · best evaluation {}{} at step {}", run.goal == kLossGoal ? "" : escaped(run.goal) + " ",
                  kLoss.words(best->value(run.goal)), format_count(best->step));
  return text + "</p>\n";
}

}  // namespace

std::string run_page(const RunHistory& run) {
  const std::string name =
      escaped(run.folder.filename().empty() ? run.folder.parent_path().filename().string()
                                            : run.folder.filename().string());
  std::string html = page::head(name, kRunStyle);
  if (!run.model.empty())
    html += formatted("<p>{} · {} · {}</p>\n", escaped(run.model), escaped(run.method), escaped(run.data));
  if (!run.batch.empty())
    html += formatted("<p>effective batch {} · {}</p>\n", run.batch, escaped(run.kernels));
  if (const std::string ranks = ranks_words(run); !ranks.empty())
    html += formatted("<p>ranks {}</p>\n", ranks);
  html += verdict(run) + readout();
  html +=
      chart(run, kLoss, run.evaluations.empty() ? "per target token" : "per target token; dots: evaluation");
  html += chart(run, kRate, "");
  html += chart(run, kSpeed, "tokens a second, median " + kSpeed.words(median_rate(run)));
  html += chart(run, kMemory,
                "after each step; planned: the peak of the whole run, which measured " +
                    format_bytes(largest_rss(run)));
  return html + evaluations(run) + table(run) + events(run) + page::end(data(run), kRunScript);
}

}  // namespace plimsoll
