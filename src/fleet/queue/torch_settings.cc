#include "fleet/queue/torch_settings.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>

#include "base/format.h"
#include "base/proc_file.h"
#include "base/strings.h"

namespace plimsoll::queue {
namespace {

namespace fs = std::filesystem;

// Pieces that lie apart are joined since then; older versions refuse the word.
constexpr TorchVersion kExpandableSegments{2, 1};
// The newer name, PYTORCH_ALLOC_CONF, is not heeded by 2.9; the older one by all.
constexpr const char* kNames[] = {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"};

// The program's file, its last link not followed: that is what makes an environment of its own.
fs::path file_of(const std::string& program, const fs::path& folder, const std::string& path) {
  if (program.find('/') != std::string::npos) return folder / program;
  for (const std::string& one : split(path, ':'))
    if (const fs::path file = folder / one / program; access(file.c_str(), X_OK) == 0) return file;
  return {};
}

// "__version__ = '2.4.1+cu121'" in a line of a file that PyTorch's build writes.
std::optional<TorchVersion> version_in(const fs::path& file) {
  const std::string text = "\n" + read_proc(file);
  const std::string key = "\n__version__ = '";
  const size_t at = text.find(key);
  if (at == std::string::npos) return std::nullopt;
  const std::vector<std::string> parts = split(text.substr(at + key.size(), 20), '.');
  if (parts.size() < 2) return std::nullopt;
  return TorchVersion{std::atoi(parts[0].c_str()), std::atoi(parts[1].c_str())};
}

// Looks into the folders of each Python in `lib`.
void look_in(const fs::path& lib, std::vector<TorchVersion>& found) {
  std::error_code none;
  for (fs::directory_iterator one(lib, none); one != fs::directory_iterator(); one.increment(none)) {
    if (!one->path().filename().string().starts_with("python3")) continue;
    for (const char* packages : {"site-packages", "dist-packages"})
      if (const auto version = version_in(one->path() / packages / "torch/version.py"))
        found.push_back(*version);
  }
}

// The last one that counts; nothing where it is not set.
std::optional<std::string> value_of(const std::string& name, const std::vector<std::string>& environment) {
  std::optional<std::string> value;
  if (const char* own = std::getenv(name.c_str())) value = own;
  for (const std::string& one : environment)
    if (one.starts_with(name + "=")) value = one.substr(name.size() + 1);
  return value;
}

constexpr size_t kMostScript = 1 << 20;

// The text of a regular file: a pipe or a terminal could make it wait.
std::string text_of(const fs::path& file) {
  std::error_code none;
  if (!fs::is_regular_file(file, none)) return "";
  std::ifstream in(file, std::ios::binary);
  std::string text(kMostScript, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(in.gcount(), 0)));
  return text;
}

bool is_shell(const std::string& program) {
  const std::string name = fs::path(program).filename().string();
  return name == "sh" || name == "bash" || name == "dash" || name == "zsh" || name == "ksh";
}

// Python, or what starts it.
bool is_python(const std::string& program) {
  static constexpr std::array kLaunchers = {"torchrun", "accelerate", "deepspeed"};
  const std::string name = fs::path(program).filename().string();
  return std::find(kLaunchers.begin(), kLaunchers.end(), name) != kLaunchers.end() ||
         (name.starts_with("python") && name.find_first_not_of("python0123456789.") == name.npos);
}

// The script that a shell runs by a command of these words; empty: the command is not a shell. A Python that
// is a script, as those of version managers are, is a Python.
std::string script_of(const std::vector<std::string>& words, const fs::path& folder) {
  if (!is_shell(words.front())) {
    if (is_python(words.front())) return "";
    const std::string text = text_of(folder / words.front());
    if (!text.starts_with("#!")) return "";
    const std::vector<std::string> line = split(text.substr(2, text.find('\n') - 2), ' ');
    const bool shell = std::any_of(line.begin(), line.end(), is_shell);
    return shell ? text : "";
  }
  for (size_t i = 1; i < words.size(); ++i) {
    const bool is_text = words[i].starts_with('-') && !words[i].starts_with("--") && words[i].ends_with('c');
    if (is_text && i + 1 < words.size()) return words[i + 1];
    if (!words[i].starts_with('-')) return text_of(folder / words[i]);
  }
  return "";
}

}  // namespace

std::vector<std::string> python_programs(const std::string& script) {
  std::vector<std::string> programs;
  std::string activated;
  std::string word;
  const auto take = [&] {
    if (word.ends_with("/bin/activate")) activated = fs::path(word).parent_path().string();
    if (is_python(word))
      programs.push_back(
          word.find('/') != word.npos || activated.empty() ? word : formatted("{}/{}", activated, word));
    word.clear();
  };
  bool comment = false;
  for (const char c : script) {
    if (c == '\n') comment = false;
    if (c == '#' && word.empty()) comment = true;
    if (comment) continue;
    if (std::string_view(" \t\n;&|()\"'`").find(c) != std::string_view::npos)
      take();
    else
      word += c;
  }
  take();
  return programs;
}

std::optional<TorchVersion> find_torch(const std::string& program, const fs::path& folder,
                                       const std::string& path, const std::string& home) {
  const fs::path file = file_of(program, folder, path).lexically_normal();
  if (file.parent_path().filename() != "bin") return std::nullopt;
  const fs::path prefix = file.parent_path().parent_path();
  std::vector<TorchVersion> found;
  look_in(prefix / "lib", found);
  std::error_code none;
  if (!fs::exists(prefix / "pyvenv.cfg", none)) {
    look_in(prefix / "local/lib", found);
    if (!home.empty()) look_in(fs::path(home) / ".local/lib", found);
  }
  if (found.empty()) return std::nullopt;
  return *std::min_element(found.begin(), found.end());
}

std::vector<std::string> allocator_settings(const std::vector<std::string>& words,
                                            const std::vector<std::string>& environment,
                                            const fs::path& folder) {
  for (const char* name : kNames)
    if (value_of(name, environment)) return {};
  const std::string script = script_of(words, folder);
  for (const char* name : kNames)
    if (script.find(name) != std::string::npos) return {};  // it sets them itself
  std::optional<TorchVersion> version;
  for (const std::string& program : script.empty() ? std::vector{words.front()} : python_programs(script))
    if (const auto found = find_torch(program, folder, value_of("PATH", environment).value_or(""),
                                      value_of("HOME", environment).value_or("")))
      version = version ? std::min(*version, *found) : found;
  if (!version || *version < kExpandableSegments) return {};
  return {std::string(kNames[0]) + "=expandable_segments:True"};
}

}  // namespace plimsoll::queue
