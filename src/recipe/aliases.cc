#include "recipe/aliases.h"

#include <algorithm>
#include <map>

#include "base/format.h"
#include "base/strings.h"

namespace plimsoll {
namespace {

using enum Reading;

// Rows by key, in the order of the tools' columns.
using Index = std::map<std::string, std::vector<std::pair<Tool, const Alias*>>, std::less<>>;

const Index& index() {
  static const Index kIndex = [] {
    Index all;
    for (const Alias& row : aliases())
      for (size_t i = 0; i < kTools.size(); ++i)
        for (const std::string& key : split(row.keys[i], ' '))
          if (!key.empty()) all[key].emplace_back(kTools[i].first, &row);
    return all;
  }();
  return kIndex;
}

// A row's effect, in the manual's words.
std::string effect(const Alias& row) {
  switch (row.reading) {
    case off:
      return "not supported, refused unless off: " + std::string(row.note);
    case no_effect:
      return "no effect: " + std::string(row.note);
    default:
      break;
  }
  if (row.to.empty()) return "checked, no effect: " + std::string(row.note);
  if (row.to.front() == '@') return "with others: " + std::string(row.to.substr(1));
  return formatted("`{}`", row.to);
}

}  // namespace

std::string_view to_string(Tool tool) { return kTools[static_cast<size_t>(tool)].second; }

const std::vector<Alias>& aliases() {
  static const std::vector<Alias> kRows = {
#include "recipe/aliases.def"
  };
  return kRows;
}

const Alias* find_alias(std::string_view key, std::optional<Tool> tool) {
  const auto at = index().find(key);
  if (at == index().end()) return nullptr;
  const auto own = std::find_if(at->second.begin(), at->second.end(),
                                [&](const auto& entry) { return entry.first == tool; });
  return own != at->second.end() ? own->second : at->second.front().second;
}

const Alias* find_beginning(std::string_view key, Tool tool) {
  constexpr size_t kShortest = 6;
  const Alias* found = nullptr;
  for (auto at = index().lower_bound(key); at != index().end() && at->first.starts_with(key); ++at)
    for (const auto& [of, row] : at->second) {
      const bool ends_a_word = at->first.size() == key.size() || at->first[key.size()] != '_';
      if ((of != tool && of != Tool::script) || !ends_a_word || key.size() < kShortest) continue;
      if (found != nullptr && found != row) return nullptr;
      found = row;
    }
  return found;
}

bool is_alias_group(std::string_view key) {
  const std::string prefix = std::string(key) + ".";
  const auto at = index().lower_bound(prefix);
  return at != index().end() && at->first.starts_with(prefix);
}

const std::vector<std::string>& alias_keys() {
  static const std::vector<std::string> kKeys = [] {
    std::vector<std::string> keys;
    for (const auto& [key, rows] : index()) keys.push_back(key);
    return keys;
  }();
  return kKeys;
}

std::string aliases_markdown() {
  std::string text = "| Here |";
  for (const auto& [tool, name] : kTools) text += formatted(" {} |", name);
  text += "\n|---|---|---|---|---|---|\n";
  for (const Alias& row : aliases()) {
    text += formatted("| {} |", effect(row));
    for (const std::string_view keys : row.keys) {
      std::vector<std::string> names = split(keys, ' ');
      std::erase(names, "");
      for (std::string& name : names) name.insert(0, "`").append("`");
      text += (names.empty() ? "" : " " + join(names, ", ")) + " |";
    }
    text += "\n";
  }
  return text;
}

}  // namespace plimsoll
