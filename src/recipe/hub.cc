#include "recipe/hub.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>
#include <regex>
#include <set>

#include "base/environment.h"
#include "base/error.h"
#include "base/file_ending.h"
#include "base/format.h"
#include "base/regular_file.h"
#include "base/strings.h"
#include "models/family.h"
#include "models/shapes.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLongestRevision = 256;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// "Qwen/Qwen2.5-0.5B" of the cache's folder "models--Qwen--Qwen2.5-0.5B".
std::optional<std::string> model_of_repository(std::string_view folder) {
  constexpr std::string_view kModels = "models--";
  if (!folder.starts_with(kModels)) return std::nullopt;
  std::string name(folder.substr(kModels.size()));
  if (const size_t between = name.find("--"); between != std::string::npos) name.replace(between, 2, "/");
  return name;
}

bool is_part(std::string_view text) {
  const auto allowed = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  };
  return !text.empty() && text.size() <= 96 && text.front() != '.' && text.front() != '-' &&
         std::all_of(text.begin(), text.end(), allowed) && text.find("..") == std::string_view::npos;
}

constexpr std::array<std::string_view, 6> kOtherSplits = {"test", "validation", "valid",
                                                          "val",  "dev",        "eval"};

// A name with such an end is a missing file, not a name of the hub.
constexpr std::array<std::string_view, 16> kFileTypes = {
    ".parquet", ".jsonl", ".json", ".csv",         ".tsv",  ".arrow", ".txt", ".yaml",
    ".feather", ".yml",   ".gz",   ".safetensors", ".gguf", ".bin",   ".pt",  ".pth"};

// "data/train-00000-of-00001.parquet" says train: a word of its name or of one of its folders.
bool says(const std::string& path, std::string_view word) {
  std::string part;
  for (const char c : path + "/") {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      part += c;
      continue;
    }
    if (part == word) return true;
    part.clear();
  }
  return false;
}

// "train_sft" of "data/train_sft-00000-of-00003.parquet": the hub's own naming of a split's files.
std::optional<std::string> sharded_split(const std::string& path) {
  static const std::regex kSharded("([A-Za-z0-9_.]+)-[0-9]{5}-of-[0-9]{5}(-[0-9a-f]+)?\\.[a-z]+(\\.gz)?");
  const std::string name = fs::path(path).filename().string();
  std::smatch match;
  if (name.size() > 200 || !std::regex_match(name, match, kSharded)) return std::nullopt;
  return match[1].str();
}

bool names_a_split(const std::string& path) {
  return says(path, "train") || std::any_of(kOtherSplits.begin(), kOtherSplits.end(),
                                            [&](std::string_view split) { return says(path, split); });
}

// The files of a split as the library datasets chooses them: by the names that the hub gives to its files;
// else those with the split in their name; and if no file has a split, all of them are train.
std::vector<std::string> of_split(const std::vector<std::string>& files, const std::string& split) {
  const auto keep = [&](auto belongs) {
    std::vector<std::string> kept;
    std::copy_if(files.begin(), files.end(), std::back_inserter(kept), belongs);
    return kept;
  };
  if (std::any_of(files.begin(), files.end(),
                  [](const auto& file) { return sharded_split(file).has_value(); }))
    return keep([&](const std::string& file) { return sharded_split(file) == split; });
  if (std::none_of(files.begin(), files.end(), names_a_split))
    return split == "train" ? files : std::vector<std::string>{};
  return keep([&](const std::string& file) { return says(file, split); });
}

// Data files under the folder, relative to it, sorted. Bounded: a data set has no million of files.
std::vector<std::string> data_files(const fs::path& folder) {
  constexpr size_t kMost = 100'000;
  std::vector<std::string> files;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string type = ending_of(unpacked_name(at->path()));
    const bool is_data =
        type == ".parquet" || type == ".jsonl" || type == ".json" || type == ".csv" || type == ".arrow";
    std::error_code unknown;
    if (is_data && at->is_regular_file(unknown))
      files.push_back(at->path().lexically_relative(folder).string());
    if (files.size() > kMost) throw UsageError(folder.string() + ": holds too many files for a data set");
  }
  std::sort(files.begin(), files.end());
  const std::vector<std::string> all = files;
  std::erase_if(files, [&](const std::string& file) {  // packed, and there unpacked too
    return is_packed(file) && std::binary_search(all.begin(), all.end(), unpacked_name(file).string());
  });
  return files;
}

}  // namespace

bool is_hub_name(std::string_view text, bool bare) {
  const std::string small = in_small_letters(text);
  const auto ends = [&](std::string_view type) { return small.ends_with(type); };
  if (std::any_of(kFileTypes.begin(), kFileTypes.end(), ends)) return false;
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return bare && is_part(text);
  return is_part(text.substr(0, slash)) && is_part(text.substr(slash + 1));
}

fs::path hub_home() {
  if (const std::string home = environment("HF_HOME"); !home.empty()) return home;
  const std::string cache = environment("XDG_CACHE_HOME");
  return (cache.empty() ? fs::path(environment("HOME")) / ".cache" : fs::path(cache)) / "huggingface";
}

fs::path hub_cache() {
  const std::string cache = environment("HF_HUB_CACHE");
  return cache.empty() ? hub_home() / "hub" : fs::path(cache);
}

fs::path hub_repository(HubKind kind, std::string_view name) {
  std::string folder = kind == HubKind::model ? "models--" : "datasets--";
  for (const char c : name) folder += c == '/' ? std::string("--") : std::string(1, c);
  return hub_cache() / folder;
}

std::optional<fs::path> find_in_hub_cache(HubKind kind, std::string_view name) {
  const fs::path repository = hub_repository(kind, name);
  std::string revision;
  if (is_there(repository / "refs" / "main"))
    revision = trim(read_start(repository / "refs" / "main", kLongestRevision));
  if (is_part(revision) && is_there(repository / "snapshots" / revision))
    return repository / "snapshots" / revision;
  std::error_code error;
  std::vector<fs::path> versions;
  for (fs::directory_iterator at(repository / "snapshots", error), end; !error && at != end;
       at.increment(error))
    versions.push_back(at->path());
  if (versions.size() != 1) return std::nullopt;
  return versions.front();
}

std::optional<fs::path> find_in_hub_cache(HubKind kind, std::string_view name, std::string_view revision) {
  if (!is_hub_name(name, true) || !is_part(revision)) return std::nullopt;
  fs::path version = hub_repository(kind, name) / "snapshots" / revision;
  if (!is_there(version)) return std::nullopt;
  return version;
}

std::vector<std::string> models_called(std::string_view bare) {
  std::vector<std::string> names;
  if (!is_hub_name(bare, true) || bare.find('/') != std::string_view::npos) return names;
  std::error_code error;
  for (fs::directory_iterator at(hub_cache(), error), end; !error && at != end; at.increment(error)) {
    const auto name = model_of_repository(at->path().filename().string());
    if (!name || in_small_letters(name->substr(name->find('/') + 1)) != in_small_letters(bare)) continue;
    if (find_in_hub_cache(HubKind::model, *name)) names.push_back(*name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<std::string> model_called(std::string_view bare) {
  const std::vector<std::string> names = models_called(bare);
  if (names.size() > 1)
    throw UsageError(formatted(
        "'{}' is the name of several models in the Hugging Face cache: {}; say which one, with its owner",
        bare, join(names, ", ")));
  if (names.empty()) return std::nullopt;
  return names.front();
}

std::string where_to_find(HubKind kind, std::string_view name) {
  const std::string refusal = kind == HubKind::model ? refusal_of_name(name) : "";
  if (!refusal.empty()) return formatted(", and plimsoll does not train models of this name: {}", refusal);
  return formatted("; where the name is one of the hub's: {}", download_command(kind, name));
}

std::string likely_hub_name(std::string_view name) {
  struct Owner {
    std::string_view prefix, owner;
  };
  static constexpr std::array kOwners = {Owner{"Qwen", "Qwen"},
                                         Owner{"Llama", "meta-llama"},
                                         Owner{"Mistral", "mistralai"},
                                         Owner{"gpt2", "openai-community"},
                                         Owner{"bert-", "google-bert"},
                                         Owner{"roberta-", "FacebookAI"},
                                         Owner{"xlm-roberta", "FacebookAI"},
                                         Owner{"t5-", "google-t5"},
                                         Owner{"flan-t5", "google"},
                                         Owner{"mt5", "google"},
                                         Owner{"SmolLM", "HuggingFaceTB"},
                                         Owner{"TinyLlama", "TinyLlama"}};
  if (name.find('/') != std::string_view::npos) return std::string(name);
  const auto known = std::find_if(kOwners.begin(), kOwners.end(),
                                  [&](const Owner& one) { return name.starts_with(one.prefix); });
  return formatted("{}/{}", known == kOwners.end() ? "OWNER" : known->owner, name);
}

fs::path model_folder(const fs::path& named) {
  const std::string name = named.string();
  if (is_there(named) || !is_hub_name(name, true)) return named;
  if (auto found = find_in_hub_cache(HubKind::model, name)) return *std::move(found);
  if (!is_hub_name(name)) {
    const auto whole = model_called(name);
    return whole ? *find_in_hub_cache(HubKind::model, *whole) : named;
  }
  // "runs/first": if the machine has such a folder, the hub is not meant.
  if (is_there(named.parent_path()))
    throw UsageError(formatted("{}: there is no such folder in {}", name, named.parent_path().string()));
  throw UsageError(
      formatted("{}: there is no such folder, nor a model of this name in the Hugging Face cache {}{}", name,
                hub_cache().string(), where_to_find(HubKind::model, name)));
}

std::optional<HubModel> hub_model_of(const fs::path& folder) {
  fs::path version = fs::absolute(folder).lexically_normal();
  if (!version.has_filename()) version = version.parent_path();
  if (version.parent_path().filename() != "snapshots") return std::nullopt;
  const auto name = model_of_repository(version.parent_path().parent_path().filename().string());
  if (!name || !is_hub_name(*name, true)) return std::nullopt;
  const auto found = find_in_hub_cache(HubKind::model, *name);
  std::error_code unknown;
  if (!found || !fs::equivalent(*found, version, unknown)) return std::nullopt;
  return HubModel{*name, version.filename().string()};
}

std::string model_name(const fs::path& folder) {
  if (const auto hub = hub_model_of(folder)) return hub->name;
  const fs::path whole = fs::absolute(folder).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

std::string download_command(HubKind kind, std::string_view name) {
  return formatted("plimsoll fetch {}{}", name, kind == HubKind::dataset ? " --dataset" : "");
}

std::vector<std::string> split_files(const fs::path& folder, const std::string& split,
                                     const std::string& subset) {
  std::vector<std::string> candidates;
  for (const std::string& file : data_files(folder)) {
    const bool of_subset = subset.empty() || subset == "default" || file.starts_with(subset + "/") ||
                           file.starts_with(formatted("data/{}/", subset)) || file.starts_with(subset + ".");
    if (of_subset && file != "dataset_infos.json" && file != "dataset_info.json") candidates.push_back(file);
  }
  std::vector<std::string> files;
  std::set<std::string> folders;
  for (const std::string& file : of_split(candidates, split)) {
    folders.insert(fs::path(file).parent_path().string());
    files.push_back((folder / file).string());
  }
  if (files.empty())
    throw UsageError(formatted("{}: holds no file of the split '{}'{}", folder.string(), split,
                               subset.empty() ? "" : formatted(" of '{}'", subset)));
  if (folders.size() > 1)
    throw UsageError(formatted(
        "{}: several folders have files of the split '{}': {}; name the one that is meant in data.train",
        folder.string(), split, join(std::vector<std::string>(folders.begin(), folders.end()), ", ")));
  return files;
}

Located locate_on_hub(std::string_view key, const Node& node, const fs::path& folder) {
  Located located = {node, {}};
  const bool is_data = key == "data.train" || key == "data.eval";
  const HubKind kind = is_data ? HubKind::dataset : HubKind::model;
  std::vector<Node> paths;
  for (const Node& item : node.kind == Node::Kind::list ? node.items : std::vector<Node>{node}) {
    const bool is_name =
        item.kind == Node::Kind::scalar && is_hub_name(item.text, true) && !is_there(folder / item.text);
    auto found = is_name ? find_in_hub_cache(kind, item.text) : std::nullopt;
    if (is_name && !found && kind == HubKind::model)
      if (const auto whole = model_called(item.text)) found = find_in_hub_cache(kind, *whole);
    const auto known = is_name && kind == HubKind::model ? find_shape(item.text) : std::nullopt;
    const bool is_refused = is_name && kind == HubKind::model && !refusal_of_name(item.text).empty();
    if (is_name && !found && (is_hub_name(item.text) || known || is_refused))
      located.missing.push_back(formatted(
          "{}: there is no '{}' in {}, nor in the Hugging Face cache {}{}{}", key, item.text, folder.string(),
          hub_cache().string(), where_to_find(kind, known ? known->name : item.text),
          kind == HubKind::model && !is_refused ? " (to plan, --config-only is enough)" : ""));
    std::vector<std::string> files;
    if (found && key == "data.train")
      files = split_files(*found, "train", "");
    else if (found)
      files = {found->string()};
    else
      files = {item.text};
    for (const std::string& file : files) {
      paths.push_back(item);
      if (found) paths.back().text = file;
    }
  }
  if (paths.size() == 1 && node.kind != Node::Kind::list) {
    located.node = paths.front();
  } else if (node.kind == Node::Kind::scalar || node.kind == Node::Kind::list) {
    located.node.kind = Node::Kind::list;
    located.node.items = std::move(paths);
  }
  return located;
}

}  // namespace plimsoll
