#include "data/files/data_files.h"

#include <glob.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "base/error.h"
#include "base/file_ending.h"
#include "base/format.h"
#include "base/regular_file.h"
#include "base/shell_word.h"
#include "base/strings.h"
#include "data/files/packed_text.h"
#include "files/json.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 4> kTexts = {".jsonl", ".json", ".csv", ".tsv"};
constexpr const char* kFormats =
    ".parquet, .jsonl, .json, .csv, .tsv, .arrow and .feather files are read, .jsonl.gz, .json.gz, .csv.gz "
    "and .tsv.gz, too";

// Written by `datasets` next to the rows.
constexpr std::array<std::string_view, 4> kDescriptions = {"state.json", "dataset_info.json",
                                                           "dataset_infos.json", "dataset_dict.json"};

bool is_description(const fs::path& path) {
  const std::string name = path.filename().string();
  return std::find(kDescriptions.begin(), kDescriptions.end(), name) != kDescriptions.end();
}

// The files of a folder that `datasets` saved with save_to_disk(), in their order.
std::vector<fs::path> saved_files(const fs::path& folder) {
  const fs::path state_path = folder / "state.json";
  const nlohmann::json state = read_json(state_path, kMiB);
  const auto names = state.is_object() ? state.find("_data_files") : state.end();
  if (names == state.end() || !names->is_array())
    throw DamagedError(state_path.string() + ": has no list '_data_files'.");
  const auto indices = state.find("_indices_files");
  if (indices != state.end() && indices->is_array() && !indices->empty())
    throw UsageError(folder.string() +
                     ": keeps its rows' order in files of indices. Save it again with a current version of "
                     "datasets.");
  std::vector<fs::path> files;
  for (const nlohmann::json& entry : *names) {
    const auto name = entry.is_object() ? entry.find("filename") : entry.end();
    const bool plain = name != entry.end() && name->is_string() &&
                       fs::path(name->get<std::string>()).filename() == name->get<std::string>();
    if (!plain) throw DamagedError(state_path.string() + ": '_data_files' holds what is no file's name.");
    files.push_back(folder / name->get<std::string>());
    if (!fs::is_regular_file(files.back()))
      throw UsageError(
          formatted("{}: is missing, though {} lists it.", files.back().string(), state_path.string()));
  }
  if (files.empty()) throw UsageError(folder.string() + ": has no rows.");
  return files;
}

// Sorted, without what gzip has packed where the unpacked file is there too: `gunzip -k` leaves both.
std::vector<fs::path> sorted_once(std::vector<fs::path> files) {
  std::sort(files.begin(), files.end());
  const std::vector<fs::path> all = files;
  std::erase_if(files, [&](const fs::path& file) {
    return is_packed(file) && std::binary_search(all.begin(), all.end(), unpacked_name(file));
  });
  return files;
}

// " of its own, and d/train has some: name that": folders within a folder are not read.
std::string place_below(const fs::path& folder) {
  constexpr int kMost = 10'000;
  std::error_code failed;
  fs::recursive_directory_iterator at(folder, failed), end;
  for (int looked = 0; !failed && at != end && looked < kMost; at.increment(failed), ++looked)
    if (is_data_file(at->path()))
      return formatted(" of its own, and {} has some: name that", quoted(at->path().parent_path().string()));
  return "";
}

std::vector<fs::path> files_of_folder(const fs::path& folder) {
  if (fs::exists(folder / "dataset_dict.json"))
    throw UsageError(formatted("{}: is a set of splits: name one of its folders, such as {}.",
                               folder.string(), (folder / "train").string()));
  if (fs::exists(folder / "state.json")) return saved_files(folder);
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.is_regular_file() && is_data_file(entry.path())) files.push_back(entry.path());
  if (files.empty())
    throw UsageError(
        formatted("{}: the folder has no data file{}: {}.", folder.string(), place_below(folder), kFormats));
  return sorted_once(std::move(files));
}

bool is_pattern(const fs::path& path) { return path.string().find_first_of("*?[") != std::string::npos; }

// Files alone: a folder that matches is not entered.
std::vector<fs::path> matching_files(const fs::path& pattern) {
  if (pattern.string().find("**") != std::string::npos)
    throw UsageError(pattern.string() + ": '**' is not supported; * stands for names within one folder.");
  glob_t found{};
  const int status = glob(pattern.c_str(), 0, nullptr, &found);
  std::vector<fs::path> files;
  for (size_t i = 0; status == 0 && i < found.gl_pathc; ++i) {
    const fs::path path = found.gl_pathv[i];
    if (fs::is_regular_file(path) && is_data_file(path)) files.push_back(path);
  }
  globfree(&found);
  if (files.empty()) throw UsageError(formatted("{}: no data file matches: {}.", pattern.string(), kFormats));
  return sorted_once(std::move(files));
}

}  // namespace

bool is_data_file(const fs::path& path) {
  const std::string ending = ending_of(unpacked_name(path));
  const bool text = std::find(kTexts.begin(), kTexts.end(), ending) != kTexts.end();
  return (text || is_arrow_format(path)) && !is_description(path);
}

std::vector<fs::path> data_files(const fs::path& path) {
  std::error_code problem;
  if (!fs::exists(path, problem)) {
    if (is_pattern(path)) return matching_files(path);
    throw UsageError(path.string() + ": no such file or folder.");
  }
  if (fs::is_directory(path)) return files_of_folder(path);
  static const std::map<std::string, std::string> kPacked = {{".gz", "gunzip -k "},
                                                             {".zst", "zstd -d "},
                                                             {".bz2", "bunzip2 -k "},
                                                             {".xz", "unxz -k "},
                                                             {".zip", "unzip "}};
  const auto packed = kPacked.find(ending_of(path));
  if (packed != kPacked.end() && !is_data_file(path))
    throw UsageError(formatted("{}: packed files of this kind are not read: unpack it first, {}{}. {}.",
                               path.string(), packed->second, quoted(path.string()), kFormats));
  if (!is_data_file(path))
    throw UsageError(formatted("{}: the format is not supported: {}.", path.string(), kFormats));
  return {path};
}

bool is_arrow_format(const fs::path& path) {
  const std::string ending = ending_of(path);
  return ending == ".parquet" || ending == ".arrow" || ending == ".feather";
}

namespace {

std::string start_of_text(const fs::path& path, int64_t most) {
  if (!is_packed(path)) return read_start(path, most);
  std::string start(static_cast<size_t>(most), '\0');
  start.resize(PackedText(path).read(start));
  return start;
}

// Refuses UTF-16, which some programs write as "Unicode": its first bytes are no text in UTF-8.
void require_utf8_mark(const fs::path& path) {
  const std::string start = start_of_text(path, 4);
  const bool little = start.starts_with("\xFF\xFE"), big = start.starts_with("\xFE\xFF");
  if (!little && !big) return;
  const bool wide = little && start.size() == 4 && start.ends_with(std::string(2, '\0'));
  const std::string encoding = wide ? "UTF-32" : "UTF-16";
  throw DamagedError(formatted(
      "{}: is written in {} (its first bytes are {}), UTF-8 is expected: iconv -f {} -t UTF-8 {} > NEW "
      "makes it so.",
      path.string(), encoding, little ? "FF FE" : "FE FF", encoding, quoted(unpacked_name(path).string())));
}

}  // namespace

std::unique_ptr<DataFile> open_data_file(const fs::path& path, CappedMemoryPool& pool, RowErrors on_error,
                                         const TabText& tabs, int64_t most_rows) {
  require_regular(path);
  const std::string ending = ending_of(unpacked_name(path));
  if (ending == ".parquet") return open_parquet(path, pool);
  if (ending == ".arrow" || ending == ".feather") return open_arrow(path, pool);
  require_utf8_mark(path);
  if (ending == ".jsonl") return open_jsonl(path, on_error, most_rows);
  if (ending == ".json") return open_json(path, on_error, most_rows);
  return ending == ".tsv" ? open_csv(path, '\t', tabs, most_rows) : open_csv(path, ',', {}, most_rows);
}

}  // namespace plimsoll
