#include "cli/queue/queue_configs.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/format.h"
#include "base/print.h"
#include "base/printable.h"
#include "base/strings.h"
#include "base/units.h"
#include "files/atomic.h"
#include "files/file.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostFileBytes = 16 * kMiB;
constexpr const char* kChangesEnd = ".changes";  // next to the folder of a copy

// Renames the file in a word that names it, by itself or behind a '=', to `copy`. Returns false for another
// word.
bool rename_in(std::string& word, const fs::path& file, const std::string& copy) {
  const auto is_file = [&](const std::string& name) {
    return !name.empty() && fs::absolute(name).lexically_normal() == fs::absolute(file).lexically_normal();
  };
  if (is_file(word)) return word = copy, true;
  const size_t equals = word.find('=');
  if (equals == std::string::npos || !is_file(word.substr(equals + 1))) return false;
  word = word.substr(0, equals + 1) + copy;
  return true;
}

bool rename_in(queue::Command& command, const std::string& file, const std::string& copy) {
  bool named = false;
  for (std::string& word : command.words) named |= rename_in(word, file, copy);
  for (std::string& one : command.environment) named |= rename_in(one, file, copy);
  return named;
}

// A step may change what the step before has changed: the last counts, and only that is reported.
void replace_change(std::vector<queue::ConfigChange>& changes, queue::ConfigChange change) {
  std::erase_if(changes, [&](const queue::ConfigChange& one) { return one.key == change.key; });
  changes.push_back(std::move(change));
}

}  // namespace

ConfigCopies::~ConfigCopies() {
  std::error_code none;
  for (const std::string& folder : folders_) {
    fs::remove_all(folder, none);
    fs::remove(folder + kChangesEnd, none);
  }
}

void ConfigCopies::change(const std::vector<std::string>& texts, const std::string& option,
                          queue::Command& command) {
  std::map<std::string, Copied> changed;
  for (const std::string& text : texts) {
    queue::ConfigChange change = queue::read_config_change(text);
    const std::string file = change.file;
    Copied& copied = changed.try_emplace(file, files_[file]).first->second;
    replace_change(copied.changes, std::move(change));
  }
  for (auto& [file, copied] : changed) {
    std::vector<std::string> told;
    const std::string text =
        queue::changed_config(read_text(file, kMostFileBytes), file, copied.changes, told);
    fs::create_directories(store_.folder() / "files");
    std::string folder = (store_.folder() / "files" / "XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) throw StoppedError(folder + ": cannot be made");
    folders_.push_back(folder);
    const std::string copy = (fs::path(folder) / fs::path(file).filename()).string();
    if (!rename_in(command, copied.copy.empty() ? file : copied.copy, copy))
      throw UsageError(formatted("{}: neither the command nor --env names {}", option, printable(file)));
    write_new_file(copy, text);
    std::string lines;
    for (const std::string& line : told) lines += printable(formatted("{}: {}", file, line)) + "\n";
    write_new_file(folder + kChangesEnd, lines);
    flush_name(folder);
    copied.copy = copy;
    files_[file] = copied;
    for (const std::string& line : told) say("note    " + printable(formatted("{}: {}", file, line)));
  }
}

std::vector<std::string> config_changes_of(const std::string& step, std::string& rest) {
  std::vector<std::string> changes;
  std::istringstream tokens(step);
  rest.clear();
  for (std::string token; tokens >> token;) {
    const std::string before = token.substr(0, token.find('='));
    const size_t colon = before.rfind(':');
    const std::string end =
        colon == std::string::npos ? "" : fs::path(token.substr(0, colon)).extension().string();
    if (before.size() < token.size() && (end == ".yaml" || end == ".yml" || end == ".json"))
      changes.push_back(token);
    else
      rest += (rest.empty() ? "" : " ") + token;
  }
  return changes;
}

std::vector<std::string> config_changes_in(const queue::Store& store, const std::vector<std::string>& words,
                                           const std::vector<std::string>& environment) {
  const std::string files = (store.folder() / "files").string() + "/";
  std::vector<std::string> lines;
  const auto look = [&](const std::string& word) {
    const std::string name = word.starts_with(files) ? word : word.substr(word.find('=') + 1);
    if (!name.starts_with(files)) return;
    std::ifstream changes(fs::path(name).parent_path().string() + kChangesEnd);
    for (std::string line; std::getline(changes, line);) lines.push_back(line);
  };
  for (const std::string& word : words) look(word);
  for (const std::string& one : environment) look(one);
  return lines;
}

}  // namespace plimsoll
