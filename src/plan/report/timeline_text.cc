// The timeline in block characters.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/format.h"
#include "base/screen.h"
#include "base/units.h"
#include "plan/report/timeline.h"

namespace plimsoll {
namespace {

constexpr int kRows = 16;
constexpr size_t kBesideLabels = 13;  // columns of an axis's labels and what closes a line
constexpr int kLabel = 10;

struct Group {
  const char* fill;
  const char* name;
};
constexpr std::array<Group, 4> kGroups = {{{"█", "weights"},
                                           {"▓", "gradients and states"},
                                           {"▒", "activations kept"},
                                           {"░", "working tensors, scratch, inputs"}}};

size_t group_of(const std::string& component) {
  if (component.find("weights") != std::string::npos) return 0;
  if (component == "gradients" || component == "optimizer states" || component == "key-value cache") return 1;
  return component == "activations kept" ? 2 : 3;
}

// A column of the picture: the bytes of each group, summed from the bottom up.
using Column = std::array<int64_t, kGroups.size()>;

struct Picture {
  std::vector<Column> columns;
  std::string names, stages;  // below the axis
};

std::string centred(const std::string& text, size_t width) {
  if (text.size() > width) return std::string(width, ' ');
  const size_t left = (width - text.size()) / 2;
  return std::string(left, ' ') + text + std::string(width - left - text.size(), ' ');
}

Column column_of(const Timeline& timeline, const Moment& moment) {
  Column column{};
  for (size_t c = 0; c < moment.bytes.size(); ++c)
    column[group_of(timeline.components[c])] += moment.bytes[c];
  for (size_t g = 1; g < column.size(); ++g) column[g] += column[g - 1];
  return column;
}

// The busiest moment of those that fall into one of `width` columns.
const Moment& busiest(const ProgramTimeline& program, size_t column, size_t width) {
  const size_t count = program.moments.size();
  const size_t begin = column * count / width;
  const size_t end = std::max(begin + 1, (column + 1) * count / width);
  return *std::max_element(program.moments.begin() + static_cast<std::ptrdiff_t>(begin),
                           program.moments.begin() + static_cast<std::ptrdiff_t>(end),
                           [](const Moment& a, const Moment& b) { return a.total < b.total; });
}

// One blank column separates programs.
void add_program(Picture& picture, const Timeline& timeline, const ProgramTimeline& program, size_t width,
                 int64_t repeats) {
  const std::string times = repeats > 1 ? formatted(" (x {})", format_count(repeats)) : "";
  const bool roomy = program.name.size() + times.size() <= width;
  picture.names += centred(program.name + (roomy ? times : ""), width) + " ";
  const size_t forward =
      program.backward < 0 ? width
                           : width * static_cast<size_t>(program.backward) / static_cast<size_t>(program.ops);
  picture.stages += program.backward < 0 ? std::string(width, ' ') + " "
                                         : formatted("{}{} ", centred("forward", forward),
                                                     centred("backward", width - forward));
  for (size_t i = 0; i < width; ++i)
    picture.columns.push_back(column_of(timeline, busiest(program, i, width)));
  picture.columns.emplace_back();
}

Picture draw(const Plan& plan, const Timeline& timeline, size_t columns) {
  Picture picture;
  const auto free =
      static_cast<double>(columns - kBesideLabels) - static_cast<double>(timeline.programs.size());
  for (const ProgramTimeline& program : timeline.programs) {
    const auto width = static_cast<size_t>(std::floor(program.share * free));
    const bool repeats = program.name == kTrainProgram;
    add_program(picture, timeline, program, width, repeats ? plan.variant.accumulation : 1);
  }
  return picture;
}

// The group that fills a cell whose middle is at `bytes`, or a blank.
const char* cell(const Column& column, int64_t bytes) {
  for (size_t g = 0; g < column.size(); ++g)
    if (bytes < column[g]) return kGroups[g].fill;
  return " ";
}

std::string label(const std::string& text) {
  return std::string(kLabel - std::min<size_t>(text.size(), kLabel), ' ') + text;
}

std::string row_text(const Picture& picture, int row, int64_t top, int64_t budget) {
  const auto height = static_cast<double>(top) / kRows;
  const auto middle = static_cast<int64_t>((row + 0.5) * height);
  const bool is_budget =
      budget > 0 && budget <= top && static_cast<int>((static_cast<double>(budget) - 1) / height) == row;
  const bool is_tick = (row + 1) % 4 == 0;
  std::string text = label(is_tick ? format_bytes(static_cast<int64_t>((row + 1) * height)) : "");
  text += is_tick ? " ┤" : " │";
  std::string cells;
  for (const Column& column : picture.columns) {
    const std::string shown = cell(column, middle);
    cells += is_budget && shown == " " ? "╌" : shown;
  }
  if (!is_budget) cells.erase(cells.find_last_not_of(' ') + 1);
  return formatted("{}{}\n", text, cells);
}

std::string trimmed(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace

std::string timeline_text(const Plan& plan, size_t columns) {
  columns = std::clamp<size_t>(columns, 40, 120);
  constexpr int64_t kMoments = 4096;  // more than columns, so that narrow peaks are seen
  const Timeline timeline = make_timeline(plan, kMoments);
  const Picture picture = draw(plan, timeline, columns);
  const int64_t top = picture_top(plan);
  const auto budget = plan.arena_budget();
  std::string text = "  device memory over the ops of a step";
  if (budget) {
    text += budget <= top ? "   (╌ " : "   (above the picture: ";
    text += formatted("budget {})", format_bytes(*budget));
  }
  text = fitted(text, columns) + "\n\n";
  for (int row = kRows - 1; row >= 0; --row) text += row_text(picture, row, top, budget.value_or(0));
  const std::string indent(kLabel + 2, ' ');
  text += label("0") + " └";
  for (size_t i = 0; i + 1 < picture.columns.size(); ++i) text += "─";
  text += formatted("\n{}{}\n", trimmed(indent + picture.stages), trimmed(indent + picture.names));
  std::string below;
  for (const Group& group : kGroups) below += formatted("{} {}   ", group.fill, group.name);
  below.erase(below.find_last_not_of(' ') + 1);
  const TimelinePeak peak = peak_of(timeline);
  const ProgramTimeline& program = timeline.programs[peak.program];
  const Moment& moment = program.moments[peak.moment];
  below += formatted("\n  peak {} in the {}\n    {}\n", format_bytes(moment.total), program.name,
                     op_words(plan, program, moment.op));
  return text + fitted("  " + below, columns);
}

}  // namespace plimsoll
