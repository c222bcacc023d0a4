#include "prepare/order_words.h"

#include <array>
#include <cstdio>

#include "base/format.h"
#include "base/units.h"
#include "data/rows/row_access.h"
#include "files/atomic.h"

namespace plimsoll {
namespace {

std::string milliseconds(double seconds) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f ms", std::max(0.1, seconds * 1e3));
  return text.data();
}

bool exceeds_window(const DataSource& train) {
  return exceeds_window(train.dataset.units(), train.loader.order);
}

std::string order_words(const DataSource& train, const RowAccess& access) {
  if (access.kind == AccessKind::alone)
    return formatted("shuffled fully: each is read by itself from its file, about {} a row",
                     milliseconds(access.row_seconds));
  const bool in_windows = train.loader.order.shuffle == Shuffle::window && exceeds_window(train);
  const std::string windows = formatted("shuffled in windows of {} (data.shuffle: window)",
                                        format_bytes(train.loader.order.window_bytes));
  if (access.kind == AccessKind::stored)
    return formatted(
        "{}: rows are written once to a scratch file before the first step, then read one by "
        "one, about {} a row",
        in_windows ? windows : "shuffled fully", milliseconds(access.row_seconds));
  if (!in_windows) return "";
  return windows +
         ": rows of one Parquet row group stay together, so that a file sorted by some property stays "
         "partly sorted";
}

}  // namespace

void describe_order(const Recipe& recipe, bool counted, DataSetup& data) {
  DataSource& train = *data.train;
  RowAccess access = plan_access(train.dataset, train.loader.order);
  if (counted && !access.exact) {
    train.dataset.measure_store();
    access = plan_access(train.dataset, train.loader.order);
  }
  DataSummary& summary = *data.summary;
  constexpr std::array kOrders = {"false", "window", "full"};  // as Shuffle counts them
  summary.shuffle = kOrders[static_cast<size_t>(train.loader.order.shuffle)];
  summary.rows_read = to_string(access.kind);
  summary.scratch.bytes = access.store_bytes;
  summary.scratch.exact = access.exact;
  summary.scratch.seconds = access.store_seconds;
  summary.row_read_seconds = access.row_seconds;
  if (access.store_bytes > 0 && recipe.output)
    if (const int64_t free = free_disk_bytes(*recipe.output); free < access.store_bytes)
      summary.scratch.shortage = formatted("{} are free in {} now", format_bytes(free), *recipe.output);
  if (const std::string words = order_words(train, access); !words.empty())
    summary.rendering.push_back(words);
}

bool visits_in_parts(const DataSource& train) {
  const Shuffle shuffle = train.loader.order.shuffle;
  return shuffle == Shuffle::off || (shuffle == Shuffle::window && exceeds_window(train));
}

std::string begun_order_note(const Recipe& requested, const Recipe& begun, const DataSetup& data) {
  if (requested.data.shuffle == begun.data.shuffle || !exceeds_window(*data.train)) return "";
  return formatted(
      "note    this run began in an earlier version, which shuffled rows in windows of {}, and "
      "continues so (data.shuffle: window); a new run shuffles all rows",
      format_bytes(data.train->loader.order.window_bytes));
}

}  // namespace plimsoll
