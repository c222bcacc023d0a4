#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "base/printable.h"
#include "base/screen.h"
#include "base/strings.h"
#include "base/units.h"
#include "fleet/batch/batch.h"
#include "fleet/top/progress.h"

namespace plimsoll::batch {
namespace {

std::string whole_percent(double share) { return std::to_string(std::lround(share * 100)) + " %"; }

// "   ██████   ": when it ran, in the batch's time.
std::string bar_text(const Batch& batch, const Bar& bar, size_t width) {
  const double span = std::max(batch.end - batch.begin, 1e-9);
  const auto column = [&](double time) {
    const auto at = static_cast<size_t>((time - batch.begin) / span * static_cast<double>(width));
    return std::min(at, width - 1);
  };
  const size_t first = column(bar.started), last = column(bar.ended);
  std::string text(first, ' ');
  const bool failed = !bar.done && !bar.running;
  for (size_t i = first; i <= last; ++i) text += failed ? "▒" : "█";
  return text;
}

// "9.10 GiB + 512 MiB": on the card, and on the host.
std::string of_card_and_host(const Bar& bar, const std::string& card, const std::string& host) {
  return bar.need.devices > 0 ? formatted("{} + {}", card, host) : host;
}

std::string device_line(const Batch& batch, const std::string& name, int64_t capacity) {
  return formatted("{}: {}, reserved at most {}, {} of it over the time", name, format_bytes(capacity),
                   format_bytes(most_reserved(batch, name)), whole_percent(share_reserved(batch, name)));
}

// The order of the runs, the best one first.
std::string ranks_text(const Batch& batch, size_t width) {
  const std::vector<const Bar*> bars = ranked(batch);
  if (bars.empty()) return "";
  TextTable table({true, true, false, true, true, false});
  table.add_row({"rank", "id", "name", "eval", "loss", ""});
  for (size_t i = 0; i < bars.size(); ++i)
    table.add_row({std::to_string(i + 1), std::to_string(bars[i]->id), bars[i]->name,
                   top::loss_words(bars[i]->eval_loss), top::loss_words(bars[i]->loss),
                   bars[i]->running ? "running"
                   : bars[i]->done  ? ""
                                    : bars[i]->outcome});
  return "\n" + table.render("  ", width);
}

}  // namespace

std::string known_bytes(int64_t bytes) { return bytes > 0 ? format_bytes(bytes) : "-"; }

std::string batch_text(const Batch& batch, size_t width) {
  if (batch.bars.empty()) return "nothing has run yet\n";
  std::string text =
      formatted("{}{}{}{}{} done, {} failed, {} open; {} in all, started after {} on average\n", batch.runs,
                batch.runs == 1 ? " run in " : " runs in ", batch.bars.size(),
                batch.bars.size() == 1 ? " attempt: " : " attempts: ", batch.done, batch.failed, batch.open,
                format_seconds(batch.end - batch.begin), format_seconds(batch.mean_wait));
  constexpr size_t kTimes = 400;
  const Course course = course_of(batch, kTimes);
  text +=
      formatted("  {}; used at most {}\n", device_line(batch, batch.machine.host, batch.machine.host_bytes),
                format_bytes(*std::max_element(course.used.begin(), course.used.end())));
  for (const queue::MachineCard& card : batch.machine.cards)
    text += formatted("  {}{}\n", printable(device_line(batch, card.name, card.bytes)),
                      most_used(batch, card.name) > 0
                          ? formatted("; peaks of {} at most", format_bytes(most_used(batch, card.name)))
                          : "");
  text = formatted("{}{}\n", fitted(text, width), ranks_text(batch, width));
  // Names of devices and runs, and figures, next to the bars.
  TextTable table({true, false, false, true, true, true, false});
  table.add_row({"id", "name", "device", "took", "reserved", "peak", "when"});
  // A bar is never broken: a table makes no column narrower than that.
  constexpr size_t kNarrowest = 12, kBeside = 70;
  const size_t bars = std::clamp<size_t>(width > kBeside ? width - kBeside : 0, kNarrowest, 60);
  table.may_go({5, 2, 4});
  for (const Bar& bar : batch.bars)
    table.add_row(
        {std::to_string(bar.id), printable(bar.name), printable(join(bar.devices, ",")),
         format_seconds(bar.ended - bar.started),
         of_card_and_host(bar, format_bytes(bar.need.device_bytes), format_bytes(bar.need.host_bytes)),
         of_card_and_host(bar, known_bytes(bar.card_peak_bytes), known_bytes(bar.peak_bytes)),
         bar_text(batch, bar, bars)});
  return text + table.render("  ", width);
}

}  // namespace plimsoll::batch
