#include "recipe/values.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "base/units.h"

namespace plimsoll {
namespace {

// The whole of `text` as a number, as std::from_chars reads it.
template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool is_number(const Node& node) { return node.kind == Node::Kind::scalar && !node.quoted; }

bool is_name(std::string_view text) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-';
  };
  return !text.empty() && std::all_of(text.begin(), text.end(), allowed);
}

std::string yaml_number(double value) { return to_yaml(Json(value)); }

}  // namespace

std::optional<int64_t> read_integer(const Node& node, IntegerRange range) {
  if (!is_number(node)) return std::nullopt;
  const auto value = parse_number<int64_t>(node.text);
  if (!value || *value < range.lowest || *value > range.highest) return std::nullopt;
  return value;
}

std::optional<double> read_number(const Node& node, NumberRange range) {
  if (!is_number(node)) return std::nullopt;
  const auto value = parse_number<double>(node.text);
  // Written so that NaN fails.
  if (!value || !(*value >= range.lowest && *value <= range.highest)) return std::nullopt;
  if (range.below && *value == range.highest) return std::nullopt;
  return *value + 0.0;  // -0 becomes 0
}

std::optional<bool> read_boolean(const Node& node) {
  if (!is_number(node) || (node.text != "true" && node.text != "false")) return std::nullopt;
  return node.text == "true";
}

std::optional<std::string> read_text(const Node& node) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20U; };
  if (node.kind != Node::Kind::scalar || node.text.empty()) return std::nullopt;
  if (std::any_of(node.text.begin(), node.text.end(), is_control)) return std::nullopt;
  return node.text;
}

std::optional<double> read_percent(const Node& node) {
  if (node.kind != Node::Kind::scalar || !node.text.ends_with('%')) return std::nullopt;
  const auto value = parse_number<double>(std::string_view(node.text).substr(0, node.text.size() - 1));
  if (!value || !(*value >= 0.0 && *value <= 100.0)) return std::nullopt;
  return *value + 0.0;
}

std::optional<int64_t> read_bytes(const Node& node) {
  if (node.kind != Node::Kind::scalar) return std::nullopt;
  try {
    return parse_bytes(node.text, "");
  } catch (const UsageError&) {
    return std::nullopt;  // the caller's message names the key and what is allowed
  }
}

std::optional<MemoryLimit> read_memory_limit(const Node& node) {
  if (node.is_word("auto") || node.kind == Node::Kind::null) return MemoryLimit{};
  const auto percent = read_percent(node);
  if (percent && *percent > 0.0) return MemoryLimit{MemoryLimit::Kind::percent, *percent, 0};
  if (const auto bytes = read_bytes(node)) return MemoryLimit{MemoryLimit::Kind::bytes, 0.0, *bytes};
  return std::nullopt;
}

std::optional<MemoryLimit> read_device_limit(const Node& node) {
  if (node.kind != Node::Kind::map) return read_memory_limit(node);
  MemoryLimit limit{MemoryLimit::Kind::bytes, 0.0, std::numeric_limits<int64_t>::max()};
  for (const Node& item : node.items) {
    int64_t rank = 0;
    const auto [end, error] = std::from_chars(item.key.data(), item.key.data() + item.key.size(), rank);
    const bool is_rank = error == std::errc() && end == item.key.data() + item.key.size() && rank >= 0;
    const auto bytes = read_bytes(item);
    if (!is_rank || !bytes || !limit.each.emplace(rank, *bytes).second) return std::nullopt;
    limit.bytes = std::min(limit.bytes, *bytes);
  }
  return limit.each.empty() ? std::nullopt : std::optional(std::move(limit));
}

namespace {

// {path: a.jsonl, weight: 0.5, rows: ":95%"}; what evaluates has no weight.
std::optional<TrainSource> read_source(const Node& map, const std::filesystem::path& folder,
                                       const std::string& key) {
  const bool has_weight = key == "data.train";
  TrainSource source;
  for (const Node& item : map.items) {
    if (item.key == "path") {
      const auto path = read_path(item, folder);
      if (!path) return std::nullopt;
      source.path = *path;
    } else if (item.key == "weight" && has_weight) {
      const auto weight = read_number(item, {0.0, 1000.0});
      if (!weight || *weight <= 0.0)
        throw UsageError(
            formatted("{}: weight: expected a number above 0, at most 1000, found {}", key, describe(item)));
      source.weight = *weight;
    } else if (item.key == "rows") {
      const auto rows = parse_row_range(item.text);
      if (item.kind != Node::Kind::scalar || !rows)
        throw UsageError(formatted("{}: rows: expected a range such as \":1000\" or \"95%:\", found {}", key,
                                   describe(item)));
      source.rows = *rows;
    } else {
      throw UsageError(formatted("{}: '{}' is not known; a source has path, {}and rows", key,
                                 excerpt(item.key), has_weight ? "weight " : ""));
    }
  }
  if (source.path.empty()) throw UsageError(key + ": a source has no path");
  return source;
}

}  // namespace

std::optional<EvalSource> read_eval_source(const Node& node, const std::filesystem::path& folder) {
  if (node.kind == Node::Kind::null) return EvalSource{};
  EvalSource source;
  if (node.kind == Node::Kind::map) {
    const auto read = read_source(node, folder, "data.eval");
    if (!read) return std::nullopt;
    source.kind = EvalSource::Kind::path;
    source.path = read->path;
    source.rows = read->rows;
    return source;
  }
  const bool is_share = node.text.ends_with('%') && node.text.find('/') == std::string::npos;
  if (is_share) {
    const auto percent = read_percent(node);
    if (!percent || *percent == 0.0 || *percent == 100.0) return std::nullopt;
    source.kind = EvalSource::Kind::share;
    source.percent = *percent;
    return source;
  }
  if (const auto count = read_integer(node, {1, 1'000'000'000})) {
    source.kind = EvalSource::Kind::count;
    source.count = *count;
    return source;
  }
  const auto path = read_path(node, folder);
  if (!path) return std::nullopt;
  source.kind = EvalSource::Kind::path;
  source.path = *path;
  return source;
}

namespace {

// Words before a warm-up's length.
constexpr std::array<std::pair<Warmup::Rise, std::string_view>, 2> kRises = {
    {{Warmup::Rise::deepspeed, "deepspeed "}, {Warmup::Rise::deepspeed_linear, "deepspeed-linear "}}};

}  // namespace

std::optional<Warmup> read_warmup(const Node& node) {
  constexpr IntegerRange kSteps = {0, 1'000'000'000};
  if (node.is_word("axolotl")) return Warmup{Warmup::Unit::axolotl, 3.0, 100};
  if (node.kind == Node::Kind::scalar && node.text.starts_with("axolotl ")) {
    Node share = node;
    share.text.erase(0, std::string_view("axolotl ").size());
    const auto percent = read_percent(share);
    if (!percent) return std::nullopt;
    return Warmup{Warmup::Unit::axolotl, *percent, 0};
  }
  for (const auto& [rise, word] : kRises)
    if (node.kind == Node::Kind::scalar && node.text.starts_with(word)) {
      Node steps = node;
      steps.text.erase(0, word.size());
      steps.quoted = false;  // of the whole value
      auto warmup = read_warmup(steps);
      if (!warmup || warmup->rise != Warmup::Rise::even) return std::nullopt;
      warmup->rise = rise;
      return warmup;
    }
  if (const auto percent = read_percent(node)) return Warmup{Warmup::Unit::percent, *percent, 0};
  if (const auto steps = read_integer(node, kSteps)) return Warmup{Warmup::Unit::steps, 0.0, *steps};
  return std::nullopt;
}

std::optional<Every> read_every(const Node& node) {
  constexpr IntegerRange kSteps = {0, 1'000'000'000};
  Every every;
  if (node.is_word("epoch")) {
    every.unit = Every::Unit::epochs;
    return every;
  }
  if (const auto percent = read_percent(node)) {
    if (*percent == 0.0) return std::nullopt;
    every.unit = Every::Unit::percent;
    every.percent = *percent;
    return every;
  }
  const auto steps = read_integer(node, kSteps);
  if (!steps) return std::nullopt;
  every.steps = *steps;
  return every;
}

std::optional<std::string> read_path(const Node& node, const std::filesystem::path& folder) {
  const auto text = read_text(node);
  if (!text) return std::nullopt;
  const bool at_home = *text == "~" || text->starts_with("~/");
  const char* home = at_home ? std::getenv("HOME") : nullptr;
  if (at_home && home == nullptr) return std::nullopt;
  // A recipe is no shell, but people write paths as they would there.
  const std::string written = at_home ? home + text->substr(1) : *text;
  std::string path = std::filesystem::absolute(folder / written).lexically_normal().string();
  if (path.size() > 1 && path.ends_with('/')) path.pop_back();
  if (!is_utf8(path)) return std::nullopt;  // JSON and YAML could not name it
  return path;
}

std::optional<std::vector<TrainSource>> read_sources(const Node& node, const std::filesystem::path& folder) {
  std::vector<TrainSource> sources;
  if (node.kind == Node::Kind::null) return sources;
  const std::vector<Node> single = {node};
  if (node.kind == Node::Kind::list && node.items.empty()) return std::nullopt;
  for (const Node& item : node.kind == Node::Kind::list ? node.items : single) {
    if (item.kind == Node::Kind::map) {
      const auto source = read_source(item, folder, "data.train");
      if (!source) return std::nullopt;
      sources.push_back(*source);
      continue;
    }
    const auto path = read_path(item, folder);
    if (!path) return std::nullopt;
    sources.push_back({*path});
  }
  return sources;
}

std::optional<std::vector<std::string>> read_names(const Node& node) {
  std::vector<std::string> names;
  const std::vector<Node> single = {node};
  for (const Node& item : node.kind == Node::Kind::list ? node.items : single) {
    if (item.kind != Node::Kind::scalar || !is_name(item.text)) return std::nullopt;
    if (std::find(names.begin(), names.end(), item.text) != names.end()) return std::nullopt;
    names.push_back(item.text);
  }
  return names;
}

Json print_count(double count) {
  return std::floor(count) == count ? Json(std::llround(count)) : Json(count);
}

Json print_auto(int64_t value) { return value == kAuto ? Json("auto") : Json(value); }

Json print_percent(double percent) { return yaml_number(percent) + "%"; }

Json print_bytes(int64_t bytes) {
  struct Unit {
    int64_t size;
    const char* name;
  };
  for (const Unit unit : std::array<Unit, 3>{{{kGiB, "GiB"}, {kMiB, "MiB"}, {kKiB, "KiB"}}})
    if (bytes != 0 && bytes % unit.size == 0) return std::to_string(bytes / unit.size) + unit.name;
  return bytes;
}

Json print(const MemoryLimit& limit) {
  switch (limit.kind) {
    case MemoryLimit::Kind::automatic:
      return "auto";
    case MemoryLimit::Kind::percent:
      return print_percent(limit.percent);
    case MemoryLimit::Kind::bytes:
      break;
  }
  if (limit.each.empty()) return print_bytes(limit.bytes);
  Json each = Json::object();
  for (const auto& [rank, bytes] : limit.each) each[std::to_string(rank)] = print_bytes(bytes);
  return each;
}

Json print(const std::vector<TrainSource>& sources) {
  if (sources.empty()) return nullptr;
  Json list = Json::array();
  for (const TrainSource& source : sources) {
    Json item = {{"path", source.path}};
    if (source.weight != 1.0) item["weight"] = source.weight;
    if (!source.rows.is_all()) item["rows"] = print_row_range(source.rows);
    list.push_back(item.size() == 1 ? Json(source.path) : item);
  }
  return list;
}

Json print(const EvalSource& source) {
  switch (source.kind) {
    case EvalSource::Kind::none:
      return nullptr;
    case EvalSource::Kind::path:
      if (source.rows.is_all()) return source.path;
      return {{"path", source.path}, {"rows", print_row_range(source.rows)}};
    case EvalSource::Kind::count:
      return source.count;
    case EvalSource::Kind::share:
      break;
  }
  return print_percent(source.percent);
}

Json print(const Every& every) {
  if (every.unit == Every::Unit::epochs) return "epoch";
  return every.unit == Every::Unit::percent ? print_percent(every.percent) : Json(every.steps);
}

Json print(const Warmup& warmup) {
  for (const auto& [rise, word] : kRises)
    if (warmup.rise == rise) {
      Warmup steps = warmup;
      steps.rise = Warmup::Rise::even;
      const Json text = print(steps);
      return std::string(word) + (text.is_string() ? text.get<std::string>() : text.dump());
    }
  if (warmup.unit == Warmup::Unit::axolotl)
    return warmup.steps > 0 ? Json("axolotl") : Json(formatted("axolotl {}%", yaml_number(warmup.percent)));
  return warmup.unit == Warmup::Unit::percent ? print_percent(warmup.percent) : Json(warmup.steps);
}

std::string describe(IntegerRange range) {
  return formatted("a whole number from {} to {}", format_count(range.lowest), format_count(range.highest));
}

std::string describe(NumberRange range) {
  return formatted("a number from {}{}{}", yaml_number(range.lowest), range.below ? " to below " : " to ",
                   yaml_number(range.highest));
}

}  // namespace plimsoll
