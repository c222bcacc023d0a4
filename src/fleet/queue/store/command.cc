#include "fleet/queue/store/command.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <span>
#include <sstream>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/format.h"

namespace plimsoll::queue {
namespace {

namespace fs = std::filesystem;

bool is_settings_file(const fs::path& file) {
  static constexpr std::array kEnds = {".yaml", ".yml", ".json", ".toml", ".ini", ".cfg"};
  constexpr uintmax_t kMost = 16 << 20;
  std::error_code none;
  return std::find(kEnds.begin(), kEnds.end(), file.extension().string()) != kEnds.end() &&
         fs::is_regular_file(file, none) && fs::file_size(file, none) <= kMost;
}

// A file of settings by its contents; anything else as it is.
std::string by_contents(const std::string& word, const fs::path& folder) {
  if (word.empty() || word.find('\0') != std::string::npos) return word;
  const fs::path file = folder / word;
  if (!is_settings_file(file)) return word;
  std::ifstream in(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  return formatted("{} of {} bytes, crc {}", file.filename().string(), text.size(),
                   crc32c(std::as_bytes(std::span(text))));
}

std::string escaped(const std::string& word) {
  std::string text;
  for (const char c : word) {
    if (c == '\n' || c == '\\' || c == '\0') text += '\\';
    text += c == '\n' ? 'n' : c == '\0' ? '0' : c;
  }
  return text;
}

std::string plain_name(std::string name) {
  name.erase(0, std::min(name.find_first_not_of('-'), name.size()));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// "--lr=1" is of the name "lr", with a value; "--lr" without.
struct Assignment {
  std::string name;
  std::optional<std::string> value;
};
Assignment read_assignment(const std::string& word) {
  const size_t equals = word.find('=');
  if (equals == std::string::npos) return {plain_name(word), std::nullopt};
  return {plain_name(word.substr(0, equals)), word.substr(equals + 1)};
}

// Sets the value of a name in a word, but the first, or in the word behind it. Returns false if no word has
// it.
bool set_word(std::vector<std::string>& words, const Assignment& wanted) {
  bool any = false;
  for (size_t i = 1; i < words.size(); ++i) {
    const Assignment found = read_assignment(words[i]);
    if (found.name != wanted.name) continue;
    if (found.value) {
      words[i] = words[i].substr(0, words[i].find('=') + 1) + wanted.value.value_or("");
      any = true;
    } else if (words[i].starts_with('-')) {
      if (wanted.value && i + 1 < words.size()) words[++i] = *wanted.value;
      any = true;
    }
  }
  return any;
}

bool set_environment(std::vector<std::string>& environment, const std::string& name,
                     const std::string& value) {
  bool any = false;
  for (std::string& one : environment)
    if (one.starts_with(name + "=")) one = formatted("{}={}", name, value), any = true;
  return any;
}

// Programs that run another one's text: what they run says more than they do.
bool is_launcher(std::string name) {
  static constexpr std::array kLaunchers = {
      "python",   "pypy",      "bash",    "sh",      "zsh",     "dash",    "perl",  "ruby",
      "node",     "julia",     "Rscript", "uv",      "poetry",  "pipenv",  "conda", "env",
      "nice",     "time",      "timeout", "ionice",  "taskset", "numactl", "srun",  "accelerate",
      "torchrun", "deepspeed", "mpirun",  "mpiexec", "nohup",   "stdbuf"};
  name.erase(name.find_last_not_of("0123456789.") + 1);  // python3.11
  return std::find(kLaunchers.begin(), kLaunchers.end(), name) != kLaunchers.end();
}

bool is_script(const fs::path& word) {
  static constexpr std::array kEnds = {".py", ".sh", ".bash", ".pl", ".rb", ".js", ".jl", ".R", ".r"};
  return !word.string().starts_with('-') &&
         std::find(kEnds.begin(), kEnds.end(), word.extension().string()) != kEnds.end();
}

}  // namespace

std::string display_name(const std::vector<std::string>& words) {
  const std::string program = fs::path(words.front()).stem().string();
  if (!is_launcher(fs::path(words.front()).filename().string())) return program;
  for (size_t i = 1; i < words.size() && words[i] != "-c"; ++i)
    if (is_script(words[i])) return fs::path(words[i]).stem().string();
  for (size_t i = 1; i + 1 < words.size() && words[i] != "-c"; ++i)
    if (words[i] == "-m" && !words[i + 1].empty()) return words[i + 1];
  return program;
}

std::string fingerprint(const Command& command, const fs::path& folder, int devices) {
  std::string text = formatted("{}\ndevices {}", escaped(folder.string()), devices);
  const auto add = [&](const std::string& word) {
    const size_t equals = word.find('=');
    const std::string whole = by_contents(word, folder);
    const bool assigns = equals != std::string::npos && whole == word;
    text += "\n" + escaped(assigns ? word.substr(0, equals + 1) + by_contents(word.substr(equals + 1), folder)
                                   : whole);
  };
  for (const std::string& word : command.words) add(word);
  text += "\nenvironment";
  for (const std::string& one : command.environment) add(one);
  return text;
}

Command changed_command(Command command, const std::string& text, const std::string& option) {
  std::istringstream tokens(text);
  bool any = false;
  for (std::string token; tokens >> token; any = true) {
    const Assignment wanted = read_assignment(token);
    if (wanted.name.empty()) throw UsageError(formatted("{}: '{}' has no name", option, token));
    if (set_word(command.words, wanted)) continue;
    if (token.starts_with('-')) {
      command.words.push_back(token);
      continue;
    }
    if (!wanted.value)
      throw UsageError(formatted("{}: expected NAME=VALUE or an option to add, found '{}'", option, token));
    if (!set_environment(command.environment, token.substr(0, token.find('=')), *wanted.value))
      throw UsageError(formatted("{}: neither the command nor --env has a '{}'; --{} adds it as an option",
                                 option, wanted.name, token));
  }
  if (!any) throw UsageError(option + ": is empty; expected NAME=VALUE or an option to add");
  return command;
}

bool has_name(Command command, const std::string& text) {
  return set_word(command.words, read_assignment(text)) ||
         set_environment(command.environment, text.substr(0, text.find('=')), "");
}

}  // namespace plimsoll::queue
