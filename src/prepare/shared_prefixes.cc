#include "prepare/shared_prefixes.h"

#include <limits>

#include "base/error.h"
#include "base/format.h"
#include "models/model.h"

namespace plimsoll {
namespace {

// The least share of a step's tokens that is worth sharing. Below it the costs of trees (a segment's inputs,
// the backward pass of attention over whole trees) are not worth what they save.
constexpr double kWorthSharing = 0.2;

}  // namespace

std::string why_no_shared_prefixes(const Recipe& recipe, const Experiment& experiment) {
  if (recipe.memory.keep_frozen == KeepFrozen::on)
    return "memory.keep_frozen: on caches the outputs of frozen layers for each row by itself; set "
           "it to off";
  if (recipe.devices > 1) return formatted("devices: {} deals rows by their length", recipe.devices);
  // Rows may be of any length where they give max_length.
  const int64_t longest =
      recipe.data.max_length == kLongestRow ? std::numeric_limits<int64_t>::max() : recipe.data.max_length;
  const std::string why = why_no_shared_prefixes(experiment.model, longest);
  return why.empty() ? "" : formatted("the model is a {}, which {}", experiment.model.architecture, why);
}

bool shares_prefixes(const Recipe& recipe, const Experiment& experiment, const DataSummary* rows) {
  if (recipe.data.share_prefixes == SharePrefixes::off || recipe.data.joined) return false;
  const std::string why = why_no_shared_prefixes(recipe, experiment);
  if (recipe.data.share_prefixes == SharePrefixes::automatic)
    return why.empty() && !recipe.draws_by_rows() && rows != nullptr && rows->shared_share >= kWorthSharing;
  if (!why.empty())
    throw UsageError(
        formatted("data.share_prefixes: on, but {}; or write data.share_prefixes: off (auto is off here by "
                  "itself)",
                  why));
  return true;
}

}  // namespace plimsoll
