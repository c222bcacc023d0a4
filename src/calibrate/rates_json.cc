#include "calibrate/rates_json.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/json_text.h"
#include "files/json.h"

namespace plimsoll {
namespace {

using Json = nlohmann::ordered_json;

// The plain numbers, under the names that the file has.
constexpr std::array<std::pair<const char*, double DeviceRates::*>, 8> kNumbers = {
    {{"matmul_f32", &DeviceRates::matmul_f32},
     {"matmul_bf16", &DeviceRates::matmul_bf16},
     {"bandwidth", &DeviceRates::bandwidth},
     {"op_overhead", &DeviceRates::op_overhead},
     {"host_copy", &DeviceRates::host_copy},
     {"disk_read", &DeviceRates::disk_read},
     {"disk_write", &DeviceRates::disk_write},
     {"page_touch", &DeviceRates::page_touch}}};

// Files of before it was measured. Vectors of bf16 take two products where those of f32 take one, and where a
// rate of matrices is higher tiles have run them.
double vector_rate_of(const nlohmann::json& json, const DeviceRates& rates) {
  const auto found = json.find("vector_bf16");
  return found == json.end() ? std::min(rates.matmul_bf16, 2 * rates.matmul_f32) : found->get<double>();
}

// A loop over null or a number would go through without a word.
const nlohmann::json& list_at(const nlohmann::json& json, const char* key) {
  const nlohmann::json& list = json.at(key);
  if (!list.is_array()) throw UsageError(formatted("{} is {}, not an array", key, describe_kind(list)));
  return list;
}

Json grid_to_json(const MatmulGrid& grid) {
  const MatmulShape& form = grid.form;
  return {{"a", to_string(form.a)},
          {"b", to_string(form.b)},
          {"c", to_string(form.c)},
          {"a_transposed", form.a_transposed},
          {"b_transposed", form.b_transposed},
          {"m", grid.m},
          {"n", grid.n},
          {"k", grid.k},
          {"flop_rates", grid.flop_rates}};
}

MatmulGrid grid_from_json(const nlohmann::json& json) {
  const auto type = [&](const char* key) { return parse_dtype(json.at(key).get<std::string>()); };
  MatmulGrid grid;
  grid.form.a = type("a");
  grid.form.b = type("b");
  grid.form.c = type("c");
  json.at("a_transposed").get_to(grid.form.a_transposed);
  json.at("b_transposed").get_to(grid.form.b_transposed);
  grid.m = get_wholes<int64_t>(json.at("m"));
  grid.n = get_wholes<int64_t>(json.at("n"));
  grid.k = get_wholes<int64_t>(json.at("k"));
  json.at("flop_rates").get_to(grid.flop_rates);
  return grid;
}

Json curve_to_json(const RateCurve& curve) {
  Json points = Json::array();
  for (const RatePoint& point : curve.points) points.push_back({point.at, point.rate});
  return {{"op", curve.op},
          {"dtype", to_string(curve.dtype)},
          {"head_dim", curve.head_dim},
          {"points", std::move(points)}};
}

RateCurve curve_from_json(const nlohmann::json& json) {
  RateCurve curve{json.at("op").get<std::string>(),
                  parse_dtype(json.at("dtype").get<std::string>()),
                  get_whole<int64_t>(json, "head_dim"),
                  {}};
  for (const nlohmann::json& point : list_at(json, "points"))
    curve.points.push_back({point.at(0).get<double>(), point.at(1).get<double>()});
  return curve;
}

DeviceRates read_rates(const nlohmann::json& json) {
  DeviceRates rates;
  for (const auto& [name, member] : kNumbers) json.at(name).get_to(rates.*member);
  rates.vector_bf16 = vector_rate_of(json, rates);
  // Files of before it was written: a calibration timed the disk; a probe did not (known_rates).
  rates.disk_measured = json.value("disk_measured", true);
  for (const nlohmann::json& grid : list_at(json, "matmuls")) rates.matmuls.push_back(grid_from_json(grid));
  for (const nlohmann::json& curve : list_at(json, "ops")) rates.ops.push_back(curve_from_json(curve));
  rates.calibrated = true;
  return rates;
}

}  // namespace

Json rates_to_json(const DeviceRates& rates) {
  Json json;
  for (const auto& [name, member] : kNumbers) json[name] = rates.*member;
  json["vector_bf16"] = rates.vector_bf16;
  json["disk_measured"] = rates.disk_measured;
  json["matmuls"] = Json::array();
  for (const MatmulGrid& grid : rates.matmuls) json["matmuls"].push_back(grid_to_json(grid));
  json["ops"] = Json::array();
  for (const RateCurve& curve : rates.ops) json["ops"].push_back(curve_to_json(curve));
  return json;
}

DeviceRates rates_from_json(const nlohmann::json& json, const std::string& where) {
  DeviceRates rates;
  try {
    rates = read_rates(json);
  } catch (const nlohmann::json::exception& error) {
    throw DamagedError(formatted("{}: {}", where, error.what()));
  } catch (const UsageError& error) {
    throw DamagedError(formatted("{}: {}", where, error.what()));
  }
  if (const std::string fault = fault_of(rates); !fault.empty())
    throw DamagedError(formatted("{}: {}", where, fault));
  return rates;
}

}  // namespace plimsoll
