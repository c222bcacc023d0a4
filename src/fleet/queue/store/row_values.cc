#include "fleet/queue/store/row_values.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/json_text.h"

namespace plimsoll::queue {
namespace {

using nlohmann::json;

// Bytes that are no UTF-8 have no place in JSON: words keep theirs, each byte as a character of its own.
json as_json(const std::vector<std::string>& words) {
  json list = json::array();
  for (const std::string& word : words) {
    list.push_back(json::array());
    for (const char c : word) list.back().push_back(static_cast<int>(static_cast<unsigned char>(c)));
  }
  return list;
}

}  // namespace

std::string stored_words(const std::vector<std::string>& words) {
  const json plain = words;
  try {
    return plain.dump();
  } catch (const json::type_error&) {
    return as_json(words).dump();
  }
}

namespace {

// ["a","b"] without escapes, as almost all are: a quote then only begins or ends a word. Nothing for others.
std::optional<std::vector<std::string>> loaded_plain(std::string_view text) {
  if (text.size() < 2 || text.front() != '[' || text.find('\\') != std::string_view::npos)
    return std::nullopt;
  std::vector<std::string> words;
  for (size_t at = 1; at < text.size(); ++at) {
    if (text[at] == ']' && words.empty()) return words;
    const size_t end = text[at] == '"' ? text.find('"', at + 1) : std::string_view::npos;
    if (end == std::string_view::npos || end + 1 >= text.size()) return std::nullopt;
    words.emplace_back(text.substr(at + 1, end - at - 1));
    at = end + 1;
    if (text[at] == ']') return words;
    if (text[at] != ',') return std::nullopt;
  }
  return std::nullopt;
}
std::vector<std::string> loaded(const std::string& text) {
  if (auto plain = loaded_plain(text)) return std::move(*plain);
  std::vector<std::string> words;
  const json list = json::parse(text);
  for (const json& word : list.get_ref<const json::array_t&>()) {
    if (word.is_string()) {
      words.push_back(word.get<std::string>());
      continue;
    }
    words.emplace_back();
    for (const json& byte : word.get_ref<const json::array_t&>())
      words.back() += static_cast<char>(get_whole<uint8_t>(byte));
  }
  return words;
}

std::vector<std::string> loaded_words(const std::string& text) {
  std::vector<std::string> words = loaded(text);
  if (words.empty()) (void)json().at(0);  // throws: there is nothing to run
  return words;
}

// Each variant as the texts of its lists.
std::string stored(const std::vector<CommandVariant>& variants) {
  json list = json::array();
  for (const CommandVariant& one : variants)
    list.push_back({stored_words(std::vector<std::string>{one.text, one.fingerprint}),
                    stored_words(one.command.words), stored_words(one.command.environment)});
  return list.dump();
}
std::vector<CommandVariant> loaded_variants(const std::string& text) {
  std::vector<CommandVariant> variants;
  if (text == "[]") return variants;
  const json all = json::parse(text);
  for (const json& one : all.get_ref<const json::array_t&>()) {
    const auto list = [&](size_t i) { return loaded(one.at(i).get<std::string>()); };
    std::vector<std::string> facts = list(0);
    facts.resize(2);
    variants.push_back({facts[0], {loaded_words(one.at(1).get<std::string>()), list(2)}, facts[1]});
  }
  return variants;
}

std::string stored(const std::vector<SmallerPlan>& plans) {
  json list = json::array();
  for (const SmallerPlan& one : plans)
    list.push_back({one.host_bytes, one.seconds, one.threads, one.device_bytes, one.card, one.processes});
  return list.dump();
}
std::vector<SmallerPlan> loaded_plans(const std::string& text) {
  std::vector<SmallerPlan> plans;
  if (text == "[]") return plans;
  const json list = json::parse(text);
  for (const json& one : list.get_ref<const json::array_t&>()) {
    const auto threads = one.size() > 2 ? get_whole<int64_t>(one.at(2)) : 0;
    SmallerPlan& plan = plans.emplace_back();
    plan.host_bytes = get_whole<int64_t>(one.at(0));
    plan.seconds = one.at(1).get<double>();
    plan.threads = static_cast<int>(threads);
    if (one.size() > 4) {  // since plans for cards
      plan.device_bytes = get_whole<int64_t>(one.at(3));
      plan.card = one.at(4).get<std::string>();
    }
    const auto processes = one.size() > 5 ? get_whole<int64_t>(one.at(5)) : 0;
    plan.processes = static_cast<int>(processes);
    const bool good = plan.host_bytes >= 0 && plan.host_bytes <= kMostRowBytes && plan.device_bytes >= 0 &&
                      plan.device_bytes <= kMostRowBytes && threads >= 0 && threads <= kMostThreads &&
                      processes >= 0 && processes <= kMostDevices && plan.seconds >= 0 &&
                      plan.seconds <= kMostSeconds;
    if (!good) (void)json().at(0);  // throws
  }
  return plans;
}

// Reads the values of a row, which any program may have written: the first invalid one is named, and
// something harmless stands in its place.
class Checked {
 public:
  explicit Checked(const Statement& row) : row_(row) {}
  [[nodiscard]] const std::string& problem() const { return problem_; }

  int64_t whole(int column, const char* name, int64_t least, int64_t most) {
    const int64_t value = row_.integer(column);
    if (row_.is_whole(column) && value >= least && value <= most) return value;
    blame(name);
    return std::clamp<int64_t>(0, least, most);
  }
  int number(int column, const char* name, int least = 0, int most = INT32_MAX) {
    return static_cast<int>(whole(column, name, least, most));
  }
  double real(int column, const char* name, double least) {
    const double value = row_.real(column);
    if (row_.is_number(column) && value >= least && value <= kMostSeconds) return value;
    blame(name);
    return 0;
  }
  Need need(int column, int card, int processes) {
    Need need{number(column, "devices", 0, kMostDevices),
              whole(column + 1, "device_bytes", 0, kMostRowBytes),
              whole(column + 2, "host_bytes", 0, kMostRowBytes),
              number(column + 3, "threads", 0, kMostThreads),
              row_.text(card),
              number(processes, "processes", 1, kMostDevices),
              whole(processes + 1, "shared_bytes", 0, kMostRowBytes)};
    if (need.processes > 1 && need.devices > 0 && need.devices != need.processes) {
      blame("processes");  // each has a card
      need.processes = 1;
    }
    if (need.devices > 0 || need.card.empty()) return need;
    blame("card");  // of no device
    need.card.clear();
    return need;
  }
  // Reads a list of a column by `load`; where that throws, the column is damaged.
  template <class Load>
  auto list(int column, const char* name, Load&& load) {
    try {
      return load(row_.text(column));
    } catch (const json::exception&) {
      blame(name);
      return decltype(load(std::string())){};
    }
  }
  void blame(const char* name) {
    if (problem_.empty()) problem_ = name;
  }

 private:
  const Statement& row_;
  std::string problem_;
};

// One that cannot be run as it stands is held, and can be canceled; what is over stays over.
void hold_damaged(Entry& entry, const std::string& column) {
  entry.damage = formatted("its row in the queue's database is damaged ({})", column);
  entry.note = entry.damage;
  if (is_over(entry.state)) return;
  entry.state = State::held;
  entry.stop_requested = entry.hold_requested = false;
  entry.note = formatted("held: {}; plimsoll queue cancel {} takes it out", entry.damage, entry.id);
}

}  // namespace

Entry read_entry(const Statement& row) {
  constexpr int kLastJob = 30;  // behind kEntryColumns
  Checked checked(row);
  Entry entry;
  entry.id = row.integer(0);
  entry.name = row.text(1);
  entry.recipe = row.integer(2) != 0;
  entry.words = checked.list(3, "words", loaded_words);
  entry.environment = checked.list(4, "environment", loaded);
  entry.folder = row.text(5);
  entry.need = checked.need(6, 25, 28);
  entry.seconds = checked.real(10, "seconds", 0);
  entry.priority = checked.number(11, "priority", INT32_MIN);
  entry.retries = checked.number(12, "retries");
  entry.after = checked.list(13, "after", [](const std::string& text) {
    return text == "[]" ? std::vector<int64_t>{} : get_wholes<int64_t>(json::parse(text));
  });
  entry.state = static_cast<State>(checked.number(14, "state", 0, static_cast<int>(State::canceled)));
  entry.stop_requested = row.integer(15) != 0;
  entry.hold_requested = row.integer(16) != 0;
  entry.submitted = checked.real(17, "submitted", -kMostSeconds);
  if (!row.is_null(18)) entry.promised = checked.real(18, "promised", -kMostSeconds);
  entry.attempts = checked.number(19, "attempts");
  entry.note = row.text(20);
  entry.output = row.text(21);
  entry.fingerprint = row.text(22);
  entry.variants = checked.list(23, "variants", loaded_variants);
  entry.smaller = checked.list(24, "smaller", loaded_plans);
  const bool names_a_card =
      std::ranges::any_of(entry.smaller, [](const SmallerPlan& plan) { return !plan.card.empty(); });
  if (entry.need.devices == 0 && names_a_card) checked.blame("smaller");
  entry.held_by = checked.whole(26, "held_by", 0, INT64_MAX);
  entry.group = row.text(27);
  const bool has_last = !row.is_null(kLastJob);
  if (has_last != (entry.attempts > 0) || (is_begun(entry.state) && !has_last)) {
    checked.blame("attempts");
    entry.attempts = has_last ? entry.attempts : 0;
  }
  // No scheduler has it, and no worker of this machine would look at it.
  if (entry.state == State::submitted && row.text(kLastJob).empty()) checked.blame("state");
  if (!checked.problem().empty()) hold_damaged(entry, checked.problem());
  return entry;
}

Attempt read_attempt(const Statement& row) {
  Checked checked(row);
  Attempt attempt;
  attempt.entry = row.integer(0);
  attempt.number = checked.number(1, "number");
  attempt.started = checked.real(2, "started", -kMostSeconds);
  if (!row.is_null(3)) attempt.ended = checked.real(3, "ended", -kMostSeconds);
  attempt.need = checked.need(4, 17, 18);
  attempt.cards = checked.list(8, "cards", loaded);
  attempt.peak_bytes = checked.whole(9, "peak_bytes", 0, kMostRowBytes);
  attempt.outcome = row.text(10);
  attempt.done = row.integer(11) != 0;
  attempt.words = checked.list(12, "words", loaded);
  attempt.environment = checked.list(13, "environment", loaded);
  attempt.job = row.text(15);
  attempt.card_peak_bytes = checked.whole(16, "card_peak_bytes", 0, kMostRowBytes);
  if (!checked.problem().empty())
    attempt.outcome += formatted("{}its row in the queue's database is damaged ({})",
                                 attempt.outcome.empty() ? "" : "; ", checked.problem());
  return attempt;
}

void bind_need(Statement& statement, const Need& need) {
  statement.bind(int64_t{need.devices})
      .bind(need.device_bytes)
      .bind(need.host_bytes)
      .bind(int64_t{need.threads});
}

void bind_entry(Statement& statement, const Entry& entry) {
  statement.bind(entry.name)
      .bind(int64_t{entry.recipe})
      .bind(stored_words(entry.words))
      .bind(stored_words(entry.environment))
      .bind(entry.folder);
  bind_need(statement, entry.need);
  statement.bind(entry.seconds).bind(int64_t{entry.priority}).bind(int64_t{entry.retries});
  statement.bind(json(entry.after).dump())
      .bind(static_cast<int64_t>(entry.state))
      .bind(int64_t{entry.stop_requested})
      .bind(int64_t{entry.hold_requested})
      .bind(entry.submitted);
  if (entry.promised) {
    statement.bind(*entry.promised);
  } else {
    statement.bind_null();
  }
  statement.bind(int64_t{entry.attempts}).bind(entry.note).bind(entry.output);
  statement.bind(entry.fingerprint).bind(stored(entry.variants)).bind(stored(entry.smaller));
  statement.bind(entry.need.card).bind(entry.state == State::held ? entry.held_by : 0).bind(entry.group);
  statement.bind(int64_t{entry.need.processes}).bind(entry.need.shared_bytes);
}

}  // namespace plimsoll::queue
