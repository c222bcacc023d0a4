#include "files/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/format.h"
#include "base/json_text.h"
#include "base/units.h"
#include "files/append_file.h"
#include "files/atomic.h"
#include "files/file.h"
#include "files/json.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int64_t kMostManifestBytes = 64 * kMiB;
constexpr const char* kKinds[] = {"file", "log", "folder"};
constexpr int64_t kMarkPiece = 16 * 1024;
constexpr int64_t kMarkPieces = 32;  // of a large file, from its first to its last

FileMark mark_of_start(const fs::path& path, int64_t bytes) {
  const std::string start = read_start(path, bytes);
  return {static_cast<int64_t>(start.size()), crc32c(as_bytes(start))};
}

// At most a piece of it: lines are short, and a binary log may have none.
FileMark mark_of_first_line(const fs::path& path) {
  const size_t end = read_start(path, kMarkPiece).find('\n');
  return mark_of_start(path, end == std::string::npos ? kMarkPiece : static_cast<int64_t>(end));
}

// The log that began with the marked line, or what a power cut left of it: earlier versions wrote the mark to
// the disk before the line. A beginning of a JSON line, or zeros instead of what was written.
bool is_log_of(const fs::path& path, const FileMark& mark) {
  const std::string start = read_start(path, mark.bytes);
  if (FileMark{static_cast<int64_t>(start.size()), crc32c(as_bytes(start))} == mark) return true;
  const bool has_zeros = start.find('\0') != std::string::npos;
  const bool is_short = static_cast<int64_t>(start.size()) < mark.bytes;
  if (start.find('\n') != std::string::npos) return false;
  return start.empty() || has_zeros || (is_short && start.front() == '{');
}

Json to_json(const std::map<std::string, FileMark>& marks) {
  Json json = Json::object();
  for (const auto& [name, mark] : marks) json[name] = {mark.bytes, mark.crc};
  return json;
}

bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos;
}

}  // namespace

FileMark mark_of(const fs::path& path) {
  const File file = File::open(path);
  FileMark mark{file.size(), 0};
  std::vector<std::byte> piece(static_cast<size_t>(kMarkPiece));
  const int64_t pieces = std::min((mark.bytes + kMarkPiece - 1) / kMarkPiece, kMarkPieces);
  const bool whole = mark.bytes <= kMarkPiece * kMarkPieces;
  for (int64_t i = 0; i < pieces; ++i) {
    const int64_t start = whole ? i * kMarkPiece : (mark.bytes - kMarkPiece) / (pieces - 1) * i;
    const auto part = std::span(piece).first(static_cast<size_t>(std::min(kMarkPiece, mark.bytes - start)));
    file.read(start, part);
    mark.crc = crc32c(part, mark.crc);
  }
  return mark;
}

Manifest::Manifest(fs::path folder, fs::path file) : folder_(std::move(folder)), file_(std::move(file)) {
  exists_ = !is_absent(file_);
  if (exists_) read();
}

// A crash may have cut off the last line, or left zeros in it: such a line is ignored.
void Manifest::read() {
  const std::string text = read_text(file_, kMostManifestBytes);
  size_t start = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', start)) {
    const auto line = std::string_view(text).substr(start, end - start);
    if (line.find('\0') != line.npos && text.find('\n', end + 1) == std::string::npos) break;
    read_line(line);
    start = end + 1;
  }
  whole_bytes_ = static_cast<int64_t>(start);
}

void Manifest::read_line(std::string_view line) {
  const std::string where = file_.string();
  const Json json = parse_json(line, where);
  try {
    const auto name = json.at("name").get<std::string>();
    if (!is_plain_name(name)) throw DamagedError(formatted("{}: '{}' is no name in a folder", where, name));
    const auto kind = json.at("kind");
    if (kind.is_null()) {
      entries_.erase(name);
      return;
    }
    Entry entry;
    const auto* found = std::find(std::begin(kKinds), std::end(kKinds), kind.get<std::string>());
    if (found == std::end(kKinds))
      throw DamagedError(formatted("{}: no kind is called {}", where, kind.dump()));
    entry.kind = static_cast<Kind>(found - std::begin(kKinds));
    entry.closed = json.contains("marks");
    if (entry.closed)
      for (const auto& [part, mark] : json["marks"].items())
        entry.marks[part] = {get_whole<int64_t>(mark.at(0)), get_whole<uint32_t>(mark.at(1))};
    entries_[name] = std::move(entry);
  } catch (const Json::exception& error) {
    throw DamagedError(formatted("{}: is no list of what a run wrote: {}", where, error.what()));
  }
}

std::vector<std::string> Manifest::present() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_)
    if (!is_absent(folder_ / name)) names.push_back(name);
  return names;
}

std::optional<fs::path> Manifest::foreign(const std::string& name) const {
  const fs::path path = folder_ / name;
  if (is_absent(path)) return std::nullopt;
  const auto found = entries_.find(name);
  if (found == entries_.end()) return path;
  const Entry& entry = found->second;
  const auto wanted = entry.kind == Kind::folder ? fs::file_type::directory : fs::file_type::regular;
  if (fs::symlink_status(path).type() != wanted) return path;
  if (!entry.closed) return std::nullopt;
  try {
    if (entry.kind != Kind::folder) {
      const FileMark mark = entry.marks.at("");
      const bool same = entry.kind == Kind::log ? is_log_of(path, mark) : mark_of(path) == mark;
      return same ? std::nullopt : std::optional(path);
    }
    for (const auto& inside : fs::directory_iterator(path)) {
      const auto mark = entry.marks.find(inside.path().filename().string());
      const bool regular = fs::is_regular_file(inside.symlink_status());
      if (mark == entry.marks.end() || !regular || mark_of(inside.path()) != mark->second)
        return inside.path();
    }
  } catch (const StoppedError&) {  // the disk gives up, which does not show whose file it is
    throw;
  } catch (const std::exception&) {  // what cannot be read cannot be proven
    return path;
  }
  return std::nullopt;
}

std::map<std::string, FileMark> Manifest::marks_of(const std::string& name, Kind kind) const {
  const fs::path path = folder_ / name;
  if (kind == Kind::file) return {{"", mark_of(path)}};
  if (kind == Kind::log) return {{"", mark_of_first_line(path)}};
  std::map<std::string, FileMark> marks;
  for (const auto& entry : fs::directory_iterator(path))
    marks[entry.path().filename().string()] = mark_of(entry.path());
  return marks;
}

void Manifest::adopt(const std::string& name, Kind kind) {
  entries_[name] = {kind, true, marks_of(name, kind)};
}

std::string Manifest::line_of(const std::string& name) const {
  const auto found = entries_.find(name);
  Json json = {{"name", name}, {"kind", nullptr}};
  if (found != entries_.end()) {
    json["kind"] = kKinds[static_cast<size_t>(found->second.kind)];
    if (found->second.closed) json["marks"] = to_json(found->second.marks);
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void Manifest::write(const fs::path& temporary) {
  std::string text;
  for (const auto& [name, entry] : entries_) text += line_of(name);
  put_file(temporary, file_, text);
  whole_bytes_ = static_cast<int64_t>(text.size());
  exists_ = true;
}

void Manifest::append(const std::string& name) {
  AppendFile file(file_, whole_bytes_);
  const std::string line = line_of(name);
  file.write(line);
  file.sync();
  whole_bytes_ += static_cast<int64_t>(line.size());
}

void Manifest::begin(const std::string& name, Kind kind) {
  entries_[name] = {kind, false, {}};
  append(name);
}

void Manifest::close(const std::string& name) {
  Entry& entry = entries_.at(name);
  entry.marks = marks_of(name, entry.kind);
  entry.closed = true;
  append(name);
}

void Manifest::forget(const std::string& name) {
  if (entries_.erase(name) > 0) append(name);
}

}  // namespace plimsoll
