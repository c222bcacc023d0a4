#include "calibrate/card_cache.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "base/json_text.h"
#include "base/units.h"
#include "calibrate/rates_cache.h"
#include "calibrate/rates_json.h"
#include "files/atomic.h"
#include "files/json.h"
#include "files/json_values.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kCardFormat = 1;
constexpr int64_t kMaxCardBytes = 16 * kMiB;
constexpr const char* kBegin = "card-";

fs::path file_of(const fs::path& folder, const std::string& uuid) {
  return folder / (formatted("{}{}.json", kBegin, uuid));
}

Json card_json(const MeasuredCard& card) {
  const auto number = [](const auto& value) { return value ? Json(*value) : Json(nullptr); };
  return {{"format", kCardFormat},
          {"card", card.name},
          {"uuid", card.uuid},
          {"driver", card.driver},
          {"kernels", card.kernels},
          {"memory_bytes", number(card.memory_bytes)},
          {"process_bytes", number(card.process_bytes)},
          {"host_bytes", number(card.host_bytes)},
          {"graph_node_bytes", number(card.graph_node_bytes)},
          {"launch_seconds", number(card.launch_seconds)},
          {"rates", card.rates ? rates_to_json(*card.rates) : Json(nullptr)}};
}

std::optional<int64_t> bytes_at(const nlohmann::json& json, const char* key, const std::string& where) {
  const nlohmann::json& value = json.at(key);
  if (value.is_null()) return std::nullopt;
  const auto bytes = get_whole<int64_t>(value);
  // No card has more; a negative figure is invalid.
  constexpr int64_t kMost = int64_t{1} << 44;
  if (bytes < 0 || bytes > kMost) throw DamagedError(formatted("{}: {} is {}", where, key, bytes));
  return bytes;
}

std::optional<double> seconds_at(const nlohmann::json& json, const char* key, const std::string& where) {
  const nlohmann::json& value = json.at(key);
  if (value.is_null()) return std::nullopt;
  const auto seconds = value.get<double>();
  if (!(seconds > 0 && seconds < 1)) throw DamagedError(formatted("{}: {} is {}", where, key, value.dump()));
  return seconds;
}

MeasuredCard read_card(const fs::path& path) {
  const nlohmann::json json = read_json(path, kMaxCardBytes);
  const std::string where = path.string();
  if (!json.is_object() || !json.contains("format") || json["format"] != kCardFormat)
    throw DamagedError(formatted("{}: not of format {}", where, kCardFormat));
  MeasuredCard card;
  read_values(where, [&] {
    json.at("card").get_to(card.name);
    json.at("uuid").get_to(card.uuid);
    json.at("driver").get_to(card.driver);
    json.at("kernels").get_to(card.kernels);
    card.memory_bytes = bytes_at(json, "memory_bytes", where);
    card.process_bytes = bytes_at(json, "process_bytes", where);
    card.host_bytes = bytes_at(json, "host_bytes", where);
    // Files of earlier versions know of no graphs, and of no launches.
    if (json.contains("graph_node_bytes")) card.graph_node_bytes = bytes_at(json, "graph_node_bytes", where);
    if (json.contains("launch_seconds")) card.launch_seconds = seconds_at(json, "launch_seconds", where);
    if (!json.at("rates").is_null()) card.rates = rates_from_json(json["rates"], where);
  });
  if (card.rates) {
    card.rates->of_card = true;
    card.rates->note = formatted("rates measured on the {} of this machine", card.name);
  }
  return card;
}

std::optional<int64_t> least(const std::optional<int64_t>& a, const std::optional<int64_t>& b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

}  // namespace

void save_card(const fs::path& folder, const MeasuredCard& measured) {
  check_internal(!measured.uuid.empty(), "a card that was measured has no UUID");
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw StoppedError(formatted("{}: cannot be made: {}", folder.string(), error.message()));
  const fs::path path = file_of(folder, measured.uuid);
  MeasuredCard card = measured;
  try {
    const MeasuredCard before = read_card(path);
    if (before.driver == card.driver && before.kernels == card.kernels) {
      card.memory_bytes = measured.memory_bytes ? measured.memory_bytes : before.memory_bytes;
      card.process_bytes = least(measured.process_bytes, before.process_bytes);
      if (!card.host_bytes) card.host_bytes = before.host_bytes;
      if (!card.graph_node_bytes) card.graph_node_bytes = before.graph_node_bytes;
      if (!card.launch_seconds) card.launch_seconds = before.launch_seconds;
      if (!card.rates) card.rates = before.rates;
    }
  } catch (const Error&) {
    // Nothing was there, or nothing that can be read: what is measured now takes its place.
  }
  write_file_atomically(path, card_json(card).dump() + "\n");
}

std::optional<MeasuredCard> find_measured_card(const fs::path& folder, const std::string& name,
                                               const std::string& uuid, std::string& note) {
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const std::string file = entry.path().filename().string();
    if (!file.starts_with(kBegin) || !file.ends_with(".json")) continue;
    if (!uuid.empty() && entry.path() != file_of(folder, uuid)) continue;
    files.emplace_back(entry.last_write_time(none), entry.path());
  }
  std::sort(files.rbegin(), files.rend());
  for (const auto& [time, path] : files) {
    try {
      MeasuredCard card = read_card(path);
      if (card.name == name) return card;
    } catch (const Error& fault) {
      note = std::string(fault.what()) + "; `make gpu-check` writes it anew";
    }
  }
  return std::nullopt;
}

std::optional<MeasuredCard> find_measured_card(const std::string& name, const std::string& uuid,
                                               std::string& note) {
  try {
    return find_measured_card(cache_folder(), name, uuid, note);
  } catch (const UsageError&) {
    return std::nullopt;  // no folder is named: nothing was kept
  }
}

}  // namespace plimsoll
