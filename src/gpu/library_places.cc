#include "gpu/library_places.h"

#include <algorithm>
#include <string_view>

#include "base/strings.h"

namespace plimsoll::gpu {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNone = "none";

// Folders of Python's packages below a Python's own folder.
void add_packages(const fs::path& prefix, std::vector<fs::path>& folders) {
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(prefix / "lib", none)) {
    if (!entry.path().filename().string().starts_with("python3")) continue;
    for (const char* name : {"site-packages", "dist-packages"}) folders.push_back(entry.path() / name);
  }
}

// Pythons: the active environment's, the one that PATH finds, the system's.
std::vector<fs::path> package_folders(const ReadVariable& variable) {
  std::vector<fs::path> folders;
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const char* prefix = variable(name); prefix != nullptr) add_packages(prefix, folders);
  if (const char* path = variable("PATH"); path != nullptr)
    for (const std::string& folder : split(path, ':')) {
      std::error_code none;
      const fs::path python = fs::path(folder) / "python3";
      if (folder.empty() || !fs::exists(python, none)) continue;
      add_packages(python.parent_path().parent_path(), folders);
      add_packages(fs::canonical(python, none).parent_path().parent_path(), folders);
      break;
    }
  if (const char* own = variable("HOME"); own != nullptr) add_packages(fs::path(own) / ".local", folders);
  for (const char* prefix : {"/usr/local", "/usr"}) add_packages(prefix, folders);
  return folders;
}

std::vector<fs::path> library_folders(const SoughtLibrary& sought, const ReadVariable& variable) {
  std::vector<fs::path> folders;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* toolkit = variable(name); toolkit != nullptr)
      folders.push_back(fs::path(toolkit) / "lib64");
  folders.emplace_back("/usr/local/cuda/lib64");
  folders.emplace_back("/usr/local/cuda/targets/x86_64-linux/lib");
  for (const fs::path& packages : package_folders(variable))
    for (const std::string& package : sought.packages)
      folders.push_back(packages / "nvidia" / package / "lib");
  return folders;
}

}  // namespace

std::vector<fs::path> library_places(const SoughtLibrary& sought, const ReadVariable& variable) {
  if (const char* named = variable(sought.variable); named != nullptr) {
    if (std::string_view(named) == kNone) return {};
    return {named};
  }
  const std::vector<fs::path> folders = library_folders(sought, variable);
  std::vector<fs::path> places;
  std::error_code none;
  for (const std::string& name : sought.names) {
    places.emplace_back(name);
    for (const fs::path& folder : folders) {
      const fs::path file = folder / name;
      const bool is_new = std::find(places.begin(), places.end(), file) == places.end();
      if (is_new && fs::exists(file, none)) places.push_back(file);
    }
  }
  return places;
}

}  // namespace plimsoll::gpu
