// The plan as one HTML file.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/page.h"
#include "base/units.h"
#include "graph/op_kind.h"
#include "plan/report/page_assets.h"
#include "plan/report/report_parts.h"
#include "plan/report/timeline.h"

namespace plimsoll {
namespace {

using Json = nlohmann::ordered_json;
using page::escaped;
using page::number;
using page::percent;

constexpr int64_t kMoments = 2000;  // steps of the picture: the page stays below a megabyte
constexpr double kWidth = 2000.0;   // of the picture in its own units; the page stretches it
constexpr double kHeight = 1000.0;

// Colours after Okabe and Ito (distinct for the colour-blind, also on dark ground), with a violet and greys.
const char* colour_of(const std::string& component) {
  static const std::map<std::string, const char*> kColours = {
      {"weights (frozen)", "#0072b2"},   {"weights (nf4)", "#56b4e9"},     {"weights (int8)", "#56b4e9"},
      {"starts of adapters", "#b9d9ee"}, {"weights (trained)", "#8c7ae6"}, {"master weights", "#5d4b9c"},
      {"optimizer states", "#009e73"},   {"gradients", "#cc79a7"},         {"key-value cache", "#7a8c99"},
      {"activations kept", "#e69f00"},   {"working tensors", "#d55e00"},   {"inputs and metrics", "#999999"},
      {"library scratch", "#f0e442"}};
  const auto found = kColours.find(component);
  return found == kColours.end() ? "#999999" : found->second;
}

// A part of the page's width, from 0 to 1.
struct Span {
  double x = 0, width = 0;
};

std::vector<Span> spans_of(const Timeline& timeline) {
  constexpr double kGap = 0.004;
  std::vector<Span> spans;
  double x = 0;
  for (const ProgramTimeline& program : timeline.programs) {
    const bool last = &program == &timeline.programs.back();
    spans.push_back({x, program.share - (last ? 0 : kGap)});
    x += program.share;
  }
  return spans;
}

// The outline of the first `count` components of a program, down to zero: outlines are painted from the
// tallest to the lowest, so that each shows its own component.
std::string outline(const ProgramTimeline& program, const Span& span, size_t count, int64_t top) {
  const auto y_of = [&](const Moment& moment) {
    int64_t bytes = 0;
    for (size_t c = 0; c < count; ++c) bytes += moment.bytes[c];
    return number(kHeight * (1.0 - static_cast<double>(bytes) / static_cast<double>(top)));
  };
  const double step = span.width * kWidth / static_cast<double>(program.moments.size());
  std::string path = formatted("M{} {}", number(span.x * kWidth), number(kHeight));
  std::string y;
  for (size_t m = 0; m < program.moments.size(); ++m) {
    const std::string next = y_of(program.moments[m]);
    if (next == y) continue;
    if (m > 0) path += "H" + number(span.x * kWidth + static_cast<double>(m) * step);
    path += "V" + next;
    y = next;
  }
  return formatted("{}H{}V{}Z", path, number((span.x + span.width) * kWidth), number(kHeight));
}

std::string picture(const Timeline& timeline, const std::vector<Span>& spans, int64_t top) {
  std::string svg = formatted(
      "<svg viewBox=\"0 0 {} {}\" preserveAspectRatio=\"none\" role=\"img\" "
      "aria-label=\"device memory over the ops of a step, by component\">",
      number(kWidth), number(kHeight));
  for (size_t c = timeline.components.size(); c > 0; --c) {
    std::string path;
    for (size_t p = 0; p < timeline.programs.size(); ++p)
      path += outline(timeline.programs[p], spans[p], c, top);
    const std::string& name = timeline.components[c - 1];
    svg += formatted("<path fill=\"{}\" d=\"{}\"/>\n", colour_of(name), path);
  }
  return svg + "</svg>\n";
}

std::string height_of(int64_t bytes, int64_t top) {
  return percent(static_cast<double>(bytes) / static_cast<double>(top));
}

std::string axis(int64_t top) {
  std::string html;
  const int64_t step = page::tick_bytes(top);
  for (int64_t bytes = 0; bytes <= top; bytes += step)
    html += page::tick(static_cast<double>(bytes) / static_cast<double>(top),
                       bytes == 0 ? "0" : format_bytes(bytes));
  return html + "\n";
}

// The picture is of the arena: of the budget, what the memory outside of it leaves.
std::string arena_budget_words(const Plan& plan, int64_t budget) {
  const std::optional<int64_t> whole = memory_budget(plan.request);
  if (!whole || *whole == budget) return "budget " + format_bytes(budget);
  return formatted("budget {}, of it for the arena {}", format_bytes(*whole), format_bytes(budget));
}

std::string budget_line(const Plan& plan, int64_t top) {
  const auto budget = plan.arena_budget();
  if (!budget) return "";
  if (*budget > top) {
    return formatted("<div class=\"limit above\" style=\"bottom:100%\"><span>&uarr; {}</span></div>\n",
                     arena_budget_words(plan, *budget));
  }
  return formatted("<div class=\"limit\" style=\"bottom:{}\"><span>{}</span></div>\n",
                   height_of(*budget, top), arena_budget_words(plan, *budget));
}

std::string phases(const Plan& plan, const Timeline& timeline) {
  std::string html = "<div class=\"phases\">";
  for (const ProgramTimeline& program : timeline.programs) {
    const bool repeats = program.name == kTrainProgram && plan.variant.accumulation > 1;
    html += formatted("<div style=\"width:{}\"><div class=\"name\">{}{}</div>", percent(program.share),
                      escaped(program.name),
                      repeats ? " &times; " + format_count(plan.variant.accumulation) : "");
    if (program.backward >= 0) {
      const double forward = static_cast<double>(program.backward) / program.ops;
      html += formatted(
          "<div class=\"stages\"><span style=\"width:{}\">forward</span><span "
          "style=\"width:{}\">backward</span></div>",
          percent(forward), percent(1.0 - forward));
    }
    html += "</div>";
  }
  return html + "</div>\n";
}

std::string row(const std::string& key, const std::string& name, int64_t bytes, const char* style = "") {
  return formatted("<tr{}><td>{}{}</td><td class=\"n\" title=\"{} bytes\">{}</td></tr>\n", style, key,
                   escaped(name), format_count(bytes), format_bytes(bytes));
}

// Lists the device's memory outside the arena, and the sum that the headline gives.
std::string outside_rows(const Plan& plan) {
  if (!plan.request.target.own_memory) return "";
  std::string html;
  for (const OutsidePart& part : plan.outside())
    html += row("", "outside the arena: " + part.name, part.bytes + part.uncertain);
  return html + row("", "in all", plan.memory_bytes(), " class=\"sum\"");
}

std::string table(const std::string& head, const std::vector<Component>& components, bool coloured,
                  const std::string& more = "") {
  std::string html = formatted("<div><h2>{}</h2><table>\n", head);
  int64_t total = 0;
  for (const Component& component : components) {
    const bool working = component.name.starts_with("working tensors");
    const std::string key = coloured ? formatted("<i class=\"key\" style=\"background:{}\"></i>",
                                                 colour_of(working ? "working tensors" : component.name))
                                     : "";
    html += row(key, component.name, component.bytes);
    total += component.bytes;
  }
  return formatted("{}{}{}</table></div>\n", html,
                   row("", more.empty() ? "total" : "arena", total, " class=\"sum\""), more);
}

std::string fact_list(const Plan& plan) {
  std::string html = "<h2>Plan</h2><dl>";
  const auto add = [&](const std::string& name, const std::string& text) {
    html += formatted("<dt>{}</dt><dd>{}</dd>", name, escaped(text));
  };
  add("variant", variant_words(plan.request.workload.experiment, plan.variant));
  add("phases", phases_text(plan));
  for (const ReportLine& fact : facts(plan)) add(fact.name, fact.text);
  return html + "</dl>\n";
}

// Texts and tensors are stored once: most repeat.
class Names {
 public:
  size_t add(const std::string& key, Json value) {
    const auto [found, is_new] = ids_.emplace(key, list_.size());
    if (is_new) list_.push_back(std::move(value));
    return found->second;
  }
  [[nodiscard]] const Json& list() const { return list_; }

 private:
  std::map<std::string, size_t> ids_;
  Json list_ = Json::array();
};

std::string data(const Plan& plan, const Timeline& timeline, const std::vector<Span>& spans) {
  Names words, tensors;
  Json programs = Json::array();
  for (size_t p = 0; p < timeline.programs.size(); ++p) {
    const ProgramTimeline& program = timeline.programs[p];
    const Graph& graph = plan.programs[program.program];
    Json moments = Json::array();
    for (const Moment& moment : program.moments) {
      const Op& op = graph.ops()[static_cast<size_t>(moment.op)];
      const std::string text = formatted("{}{} ({})", op.scope.empty() ? "" : op.scope + ", ",
                                         to_string(op.stage), to_string(op.kind));
      Json largest = Json::array();
      for (const size_t id : moment.largest) {
        const Tensor& tensor = graph.tensors()[id];
        largest.push_back(tensors.add(program.name + tensor.name, {tensor.name, tensor.bytes()}));
      }
      moments.push_back({moment.op, words.add(text, text), moment.bytes, largest});
    }
    programs.push_back({{"name", program.name},
                        {"ops", program.ops},
                        {"x", spans[p].x},
                        {"width", spans[p].width},
                        {"moments", moments}});
  }
  Json components = Json::array();
  for (const std::string& name : timeline.components) components.push_back({name, colour_of(name)});
  const TimelinePeak peak = peak_of(timeline);
  return Json{{"components", components},
              {"peak", {peak.program, peak.moment}},
              {"words", words.list()},
              {"tensors", tensors.list()},
              {"programs", programs}}
      .dump();
}

// "fits · device 4.96 GiB of 8.00 GiB · ..." with the verdict's first words set apart.
std::string headline(const Plan& plan) {
  std::string lines = verdict_text(plan);
  std::replace(lines.begin(), lines.end(), '\n', ' ');
  std::string text = escaped(lines);
  const size_t word = text.find("   ");
  text.insert(word, "</b>");
  for (size_t at = text.find("   "); at != std::string::npos; at = text.find("   ", at)) {
    const size_t end = text.find_first_not_of(' ', at);
    text.replace(at, end - at, " · ");
  }
  return formatted("<p class=\"verdict{}\"><b>{}</p>\n", plan.fits() ? "" : " bad", text);
}

std::string head(const Plan& plan, const PageOrigin& origin) {
  const std::string title = (origin.name.empty() ? "" : origin.name + ": ") + model_text(plan);
  std::string from;
  if (!origin.command.empty())
    from = formatted("<p class=\"origin\"><code>{}</code><br>{}</p>\n", escaped(origin.command),
                     escaped(origin.date));
  return formatted("{}{}<p>{}</p>\n{}", page::head(escaped(title), kPlanStyle), from,
                   escaped(experiment_text(plan)), headline(plan));
}

}  // namespace

std::string timeline_page(const Plan& plan, const PageOrigin& origin) {
  const Timeline timeline = make_timeline(plan, kMoments);
  const std::vector<Span> spans = spans_of(timeline);
  const int64_t top = picture_top(plan);
  return formatted(
      "{}<div class=\"chart\" tabindex=\"0\">{}{}{}<div class=\"cursor\"></div></div>\n{}<div "
      "class=\"readout\"><span class=\"at\">peak: "
      "{}</span><div><ul></ul><ul></ul></div></div>\n<div class=\"tables\">{}{}</div>\n{}{}",
      head(plan, origin), axis(top), picture(timeline, spans, top), budget_line(plan, top),
      phases(plan, timeline), escaped(peak_place(plan)),
      table("Device, at the peak", device_components(plan), true, outside_rows(plan)),
      table("Host", plan.host_components(), false), fact_list(plan),
      page::end(data(plan, timeline, spans), kPlanScript));
}

}  // namespace plimsoll
