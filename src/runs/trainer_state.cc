#include "runs/trainer_state.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "files/json.h"
#include "files/json_values.h"
#include "tasks/task.h"

namespace plimsoll {
namespace {

constexpr int64_t kMost = int64_t{1} << 53;         // what every reader of JSON keeps exactly
constexpr int64_t kMostPerStep = int64_t{1} << 31;  // sequences, or rows of logits

int64_t whole(const nlohmann::json& state, const char* key, int64_t least, int64_t most,
              const std::string& where) {
  const nlohmann::json& value = state.at(key);
  if (!value.is_number_unsigned() || value.get<uint64_t>() < static_cast<uint64_t>(least) ||
      value.get<uint64_t>() > static_cast<uint64_t>(most))
    throw DamagedError(formatted("{}: '{}' is {}, a whole number from {} to {} is expected", where, key,
                                 value.dump(), least, most));
  return value.get<int64_t>();
}

ShardStage stage_of(const nlohmann::json& name, const std::string& where) {
  for (const ShardStage stage :
       {ShardStage::none, ShardStage::states, ShardStage::gradients, ShardStage::weights})
    if (name == std::string(to_string(stage))) return stage;
  throw DamagedError(
      formatted("{}: 'shard' is {}, none, states, gradients or weights is expected", where, name.dump()));
}

LossScale loss_scale_of(const nlohmann::json& json, const std::string& where) {
  LossScale scale;
  scale.value = json.at("value").get<double>();
  if (!(scale.value >= LossScale::kLeast && std::isfinite(scale.value)))
    throw DamagedError(
        formatted("{}: 'loss_scale' is {}, a number from 2^-14 is expected", where, json.at("value").dump()));
  scale.good_steps = whole(json, "good_steps", 0, LossScale::kGrowthInterval, where);
  scale.skipped_steps = whole(json, "skipped_steps", 0, kMost, where);
  scale.skips_keep_weights = scale.skipped_steps == 0 || json.value("skips_keep_weights", false);
  return scale;
}

}  // namespace

std::optional<double> TrainerState::evaluated(std::string_view goal) const {
  if (goal == kLossGoal) return eval_loss;
  for (const auto& [name, value] : eval_metrics)
    if (name == goal) return value;
  return std::nullopt;
}

std::string to_text(const TrainerState& state) {
  using Json = nlohmann::ordered_json;
  Json metrics = Json::object();
  for (const auto& [name, value] : state.eval_metrics) metrics[name] = value;
  Json json = {{"step", state.step},
               {"total_steps", state.total_steps},
               {"epoch", state.position.epoch},
               {"index", state.position.index},
               {"kernels", state.kernels},
               {"micro_batch", state.micro_batch},
               {"micro_tokens", state.micro_tokens},
               {"share_prefixes", state.shares_prefixes},
               {"common_begin", state.common_begin},
               {"loss_chunk", state.loss_chunk},
               {"last_loss", state.last_loss},
               {"eval_loss", state.eval_loss ? Json(*state.eval_loss) : Json(nullptr)},
               {"eval_metrics", std::move(metrics)},
               {"fingerprint", state.fingerprint}};
  if (state.position.token > 0) json["token"] = state.position.token;
  if (state.ranks > 1) json["ranks"] = state.ranks;
  if (state.ranks > 1 && state.shard) json["shard"] = to_string(*state.shard);
  if (state.reduces_each) json["reduces"] = "each";
  if (state.loss_scale)
    json["loss_scale"] = {{"value", state.loss_scale->value},
                          {"good_steps", state.loss_scale->good_steps},
                          {"skipped_steps", state.loss_scale->skipped_steps},
                          {"skips_keep_weights", state.loss_scale->skips_keep_weights}};
  return json.dump(2) + "\n";
}

TrainerState parse_trainer_state(std::string_view text, const std::string& where) {
  const nlohmann::json json = parse_json(text, where);
  return read_values(where, [&] {
    TrainerState state;
    state.step = whole(json, "step", 0, kMost, where);
    state.position = {whole(json, "epoch", 0, kMost, where), whole(json, "index", 0, kMost, where)};
    if (json.contains("token")) state.position.token = whole(json, "token", 0, kMost, where);
    state.fingerprint = json.at("fingerprint").get<std::string>();
    state.kernels = json.at("kernels").get<std::string>();
    state.micro_batch = whole(json, "micro_batch", 1, kMostPerStep, where);
    if (json.contains("micro_tokens"))  // earlier versions wrote none
      state.micro_tokens = whole(json, "micro_tokens", 0, kMostPerStep, where);
    if (json.contains("share_prefixes")) state.shares_prefixes = json.at("share_prefixes").get<bool>();
    if (json.contains("common_begin"))
      state.common_begin = whole(json, "common_begin", 0, kMostPerStep, where);
    if (json.contains("ranks")) state.ranks = whole(json, "ranks", 1, kMostPerStep, where);
    if (json.contains("shard")) state.shard = stage_of(json["shard"], where);
    state.reduces_each = json.value("reduces", "") == "each";
    state.loss_chunk = whole(json, "loss_chunk", 1, kMostPerStep, where);
    if (json.contains("loss_scale")) state.loss_scale = loss_scale_of(json["loss_scale"], where);
    state.total_steps = whole(json, "total_steps", 0, kMost, where);
    state.last_loss = json.at("last_loss").get<double>();
    if (!json.at("eval_loss").is_null()) state.eval_loss = json.at("eval_loss").get<double>();
    const nlohmann::json metrics = json.value("eval_metrics", nlohmann::json::object());
    for (const auto& [name, value] : metrics.items())  // earlier versions wrote none
      if (value.is_number()) state.eval_metrics.emplace_back(name, value.get<double>());
    return state;
  });
}

}  // namespace plimsoll
