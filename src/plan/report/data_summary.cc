// Describes the rows of a run, in words and for machines.
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/units.h"
#include "plan/report/report_parts.h"
#include "plan/search/plan.h"
#include "plan/search/run_time.h"

namespace plimsoll {
namespace {

constexpr double kToldShare = 0.01;  // of tokens that rows share

std::string short_percent(double share) {
  const double value = share * 100.0;
  const std::string text = std::to_string(value);
  return (value > 0.0 && value < 0.1 ? "below 0.1" : text.substr(0, text.find('.') + 2)) + " %";
}

}  // namespace

std::string data_words(const DataSummary& data) {
  const std::string about = data.sampled_rows > 0 ? "about " : "";
  std::string text = formatted("{} rows · {}{} tokens · longest {}", format_count(data.rows), about,
                               format_count(data.tokens), format_count(data.longest));
  if (data.truncated_share > 0.0)
    text += formatted(" · {}{} truncated", about, short_percent(data.truncated_share));
  if (data.skipped_share > 0.0)
    text += formatted(" · {}{} without a target", about, short_percent(data.skipped_share));
  if (data.damaged_share > 0.0)
    text += formatted(" · {}{} damaged", about, short_percent(data.damaged_share));
  if (data.shared_share >= kToldShare)
    text += formatted(" · about {} of a step shared by its rows", short_percent(data.shared_share));
  if (data.shared_share >= kToldShare && data.common_begin > 1)
    text += formatted(" · {}{} tokens begin every row", about, format_count(data.common_begin));
  text += formatted(" · {} an epoch", format_bytes(data.bytes_per_epoch));
  if (data.sampled_rows > 0) text += formatted(" (estimated from {} rows)", format_count(data.sampled_rows));
  return text;
}

std::string scratch_words(const DataSummary& data) {
  if (data.scratch.bytes == 0) return "";
  const std::string about = data.scratch.exact ? "" : "about ";
  return formatted(
      "{}{} of disk in the run's folder while it runs, for the full shuffle (data.shuffle: "
      "window takes none): about {} to write before the first step{}",
      about, format_bytes(data.scratch.bytes), duration_words(data.scratch.seconds),
      data.scratch.shortage.empty() ? "" : "; " + data.scratch.shortage);
}

nlohmann::ordered_json data_json(const std::optional<DataSummary>& data) {
  if (!data) return nullptr;
  return {{"rows", data->rows},
          {"sampled_rows", data->sampled_rows > 0 ? data->sampled_rows : data->rows},
          {"estimated", data->sampled_rows > 0},
          {"tokens", data->tokens},
          {"targets", data->targets},
          {"row_length", data->row_length},
          {"longest", data->longest},
          {"common_length", data->common_length},
          {"rows_longer", data->rows_longer},
          {"truncated_share", data->truncated_share},
          {"skipped_share", data->skipped_share},
          {"damaged_share", data->damaged_share},
          {"common_begin", data->common_begin},
          {"shared_share", data->shared_share},
          {"bytes_per_epoch", data->bytes_per_epoch},
          {"shuffle",
           {{"order", data->shuffle},
            {"rows_read", data->rows_read},
            {"row_seconds", data->row_read_seconds},
            {"scratch_bytes", data->scratch.bytes},
            {"scratch_exact", data->scratch.exact},
            {"scratch_seconds", data->scratch.seconds}}}};
}

}  // namespace plimsoll
