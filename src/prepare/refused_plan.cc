#include "prepare/refused_plan.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "plan/program/variant_fields.h"

namespace plimsoll {
namespace {

using nlohmann::json;

json written(const std::optional<int64_t>& bytes) { return bytes ? json(*bytes) : json(); }
std::optional<int64_t> read_bytes(const json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.get<int64_t>());
}

json written(const std::vector<Component>& components) {
  json list = json::array();
  for (const Component& one : components) list.push_back({one.name, one.bytes});
  return list;
}
std::vector<Component> read_components(const json& list) {
  std::vector<Component> components;
  for (const json& one : list) components.push_back({one.at(0).get<std::string>(), one.at(1).get<int64_t>()});
  return components;
}

json written(const std::vector<HoldingKey>& keys) {
  json list = json::array();
  for (const HoldingKey& one : keys) list.push_back({one.what, one.key, one.value});
  return list;
}
std::vector<HoldingKey> read_keys(const json& list) {
  std::vector<HoldingKey> keys;
  for (const json& one : list)
    keys.push_back({one.at(0).get<Held>(), one.at(1).get<std::string>(), one.at(2).get<std::string>()});
  return keys;
}

json written(const std::vector<Shortage>& shortages) {
  json list = json::array();
  for (const Shortage& one : shortages)
    list.push_back({one.of, one.needed, one.allowed, one.source, one.of_free, one.free_bytes});
  return list;
}
std::vector<Shortage> read_shortages(const json& list) {
  std::vector<Shortage> shortages;
  for (const json& one : list)
    shortages.push_back({one.at(0).get<Shortage::Of>(), one.at(1).get<int64_t>(), one.at(2).get<int64_t>(),
                         one.at(3).get<std::string>(), one.at(4).get<bool>(), one.at(5).get<int64_t>()});
  return shortages;
}

json written(const RefusedVariant& variant) {
  return {{"variant", plimsoll::written(variant.variant)},
          {"words", variant.words},
          {"memory_bytes", variant.memory_bytes},
          {"host_bytes", variant.host_bytes},
          {"disk_bytes", variant.disk_bytes}};
}
RefusedVariant read_refused_variant(const json& object) {
  return {read_variant(object.at("variant")), object.at("words").get<std::string>(),
          object.at("memory_bytes").get<int64_t>(), object.at("host_bytes").get<int64_t>(),
          object.at("disk_bytes").get<int64_t>()};
}

}  // namespace

json written(const Variant& variant) {
  json object;
  for_each_field(variant, [&](const char* name, const auto& value) { object[name] = value; });
  return object;
}

Variant read_variant(const json& object) {
  Variant variant;
  for_each_field(variant, [&](const char* name, auto& value) { object.at(name).get_to(value); });
  return variant;
}

RefusedPlan::RefusedPlan(Refusal why, std::optional<ReleasedPlan> found)
    : DoesNotFitError(refusal_text(why, found)), refusal(std::move(why)), released(std::move(found)) {}

json written(const RefusedPlan& refused) {
  const Refusal& why = refused.refusal;
  json released;
  if (refused.released)
    released = {{"keys", written(refused.released->released)},
                {"words", refused.released->words},
                {"memory_bytes", refused.released->memory_bytes}};
  return {{"shortages", written(why.shortages)},
          {"own_memory", why.own_memory},
          {"host_limit", written(why.host_limit)},
          {"disk_limit", written(why.disk_limit)},
          {"sharing", why.sharing},
          {"planned", written(why.planned)},
          {"smallest", written(why.smallest)},
          {"search_ended", why.search_ended},
          {"place", why.place},
          {"largest", written(why.largest)},
          {"host", written(why.host)},
          {"persistent_bytes", why.persistent_bytes},
          {"holding", written(why.holding)},
          {"released", released}};
}

RefusedPlan read_refused_plan(const json& object) {
  Refusal why{.shortages = read_shortages(object.at("shortages")),
              .own_memory = object.at("own_memory").get<bool>(),
              .host_limit = read_bytes(object.at("host_limit")),
              .disk_limit = read_bytes(object.at("disk_limit")),
              .sharing = object.at("sharing").get<int64_t>(),
              .planned = read_refused_variant(object.at("planned")),
              .smallest = read_refused_variant(object.at("smallest")),
              .search_ended = object.at("search_ended").get<bool>(),
              .place = object.at("place").get<std::string>(),
              .largest = read_components(object.at("largest")),
              .host = read_components(object.at("host")),
              .persistent_bytes = object.at("persistent_bytes").get<int64_t>(),
              .holding = read_keys(object.at("holding"))};
  const json& released = object.at("released");
  if (released.is_null()) return {std::move(why), std::nullopt};
  return {std::move(why),
          ReleasedPlan{read_keys(released.at("keys")), released.at("words").get<std::string>(),
                       released.at("memory_bytes").get<int64_t>()}};
}

}  // namespace plimsoll
