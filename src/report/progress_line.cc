#include "report/progress_line.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "base/format.h"
#include "base/units.h"

namespace plimsoll {
namespace {

constexpr int kWidestBar = 28;
constexpr int kNarrowestBar = 6;  // a shorter one shows less than its place is worth

// Appends to a buffer as far as there is room.
class FixedLine {
 public:
  explicit FixedLine(std::span<char> out) : out_(out) {}
  void add(std::string_view text, int columns) {
    if (size_ + text.size() > out_.size()) return;
    std::memcpy(out_.data() + size_, text.data(), text.size());
    size_ += text.size();
    columns_ += columns;
  }
  void add(std::string_view ascii) { add(ascii, static_cast<int>(ascii.size())); }
  void bar(double share, int width) {
    const int filled = static_cast<int>(std::clamp(share, 0.0, 1.0) * width + 0.5);
    for (int i = 0; i < width; ++i) add(i < filled ? "█" : "░", 1);
  }
  [[nodiscard]] FittedLine fitted() const { return {size_, columns_}; }

 private:
  std::span<char> out_;
  size_t size_ = 0;
  int columns_ = 0;
};

using FieldText = std::array<char, 48>;
constexpr size_t kFields = 9;

struct Fields {
  std::array<FieldText, kFields> text;
  std::array<bool, kFields> shown{};
  [[nodiscard]] std::string_view at(size_t i) const { return text[i].data(); }
  [[nodiscard]] int columns() const {
    int sum = -2;
    for (size_t i = 0; i < kFields; ++i)
      if (shown[i]) sum += 2 + static_cast<int>(at(i).size());
    return sum;
  }
};

void print_time_left(double seconds, FieldText& text) {
  const auto all = std::llround(std::clamp(seconds, 0.0, 1e8));
  if (all >= 3600) {
    std::snprintf(text.data(), text.size(), "eta %lld:%02lld:%02lld", all / 3600, all / 60 % 60, all % 60);
  } else {
    std::snprintf(text.data(), text.size(), "eta %lld:%02lld", all / 60, all % 60);
  }
}

Fields fields_of(const StepProgress& state) {
  Fields fields;
  const auto print = [&](size_t i, const char* format, auto... values) {
    std::snprintf(fields.text[i].data(), fields.text[i].size(), format, values...);
  };
  print(0, "%lld/%lld", static_cast<long long>(state.step), static_cast<long long>(state.total));
  print(1, "loss %.4f", state.loss);
  print(2, "lr %.2e", state.learning_rate);
  print(3, "%.0f tok/s", state.tokens_per_second);
  print(4, "data %.0f %%", state.data_wait_share * 100.0);
  print_time_left(state.seconds_left, fields.text[5]);
  print(6, "mem %s", format_bytes(state.memory_bytes).c_str());
  print(7, "comm %.0f %%", state.sending_share * 100.0);
  print(8, "slowest rank %lld (+%.0f %%)", static_cast<long long>(state.slowest), state.slower * 100.0);
  fields.shown.fill(true);
  constexpr double kWorthSaying = 0.1;
  fields.shown[7] = state.slowest >= 0;
  fields.shown[8] = state.slowest >= 0 && state.slower >= kWorthSaying;
  return fields;
}

}  // namespace

FittedLine progress_line(const StepProgress& state, int width, std::span<char> out, ProgressBar wanted) {
  constexpr std::string_view kHead = "train   ";
  constexpr std::array<size_t, kFields - 1> kLeftOutFirst = {6, 4, 2, 8, 7, 3, 5, 1};
  Fields fields = fields_of(state);
  FixedLine line(out);
  const int room = width - static_cast<int>(kHead.size());
  if (width > 0)
    for (const size_t i : kLeftOutFirst)
      if (fields.columns() > room) fields.shown[i] = false;
  if (width == 0 || fields.columns() <= room) line.add(kHead);
  const int bar = std::min(kWidestBar, room - 2 - fields.columns());
  if (width > 0 && wanted == ProgressBar::fitting && bar >= kNarrowestBar) {
    line.bar(static_cast<double>(state.step) / static_cast<double>(std::max<int64_t>(1, state.total)), bar);
    line.add("  ");
  }
  bool first = true;
  for (size_t i = 0; i < kFields; ++i) {
    if (!fields.shown[i]) continue;
    if (!first) line.add("  ");
    first = false;
    line.add(width > 0 ? fields.at(i).substr(0, static_cast<size_t>(width)) : fields.at(i));
  }
  return line.fitted();
}

namespace {

FittedLine share_line(std::string_view head, const std::string& field, double share, int width,
                      std::span<char> out) {
  FixedLine line(out);
  const int room = width - static_cast<int>(field.size());
  if (room >= static_cast<int>(head.size())) line.add(head);
  const int bar = std::min(kWidestBar, room - static_cast<int>(head.size()) - 1);
  if (bar >= kNarrowestBar) {
    line.bar(share, bar);
    line.add(" ");
  }
  line.add(std::string_view(field).substr(0, static_cast<size_t>(std::max(0, width))));
  return line.fitted();
}

double share_of(int64_t done, int64_t total) {
  return static_cast<double>(done) / static_cast<double>(std::max<int64_t>(1, total));
}

}  // namespace

FittedLine loading_line(int64_t done, int64_t total, int width, std::span<char> out) {
  return share_line("load    weights ", formatted("{} of {}", format_bytes(done), format_bytes(total)),
                    share_of(done, total), width, out);
}

FittedLine rows_line(const char* what, int64_t done, int64_t total, int width, std::span<char> out) {
  return share_line(what, formatted("{} of {}", format_count(done), format_count(total)),
                    share_of(done, total), width, out);
}

}  // namespace plimsoll
