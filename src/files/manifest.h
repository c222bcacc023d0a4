// The list of the files that a run wrote into its folder, so that nothing else is ever removed, renamed or
// overwritten. One JSON object a line, appended (docs/reference/formats.md): a name enters before its file exists, its
// fingerprint once it is closed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

// Identifies a file's content: its size, and a checksum of all of it, or of 32 pieces of a large file.
struct FileMark {
  int64_t bytes = 0;
  uint32_t crc = 0;
  friend bool operator==(const FileMark&, const FileMark&) = default;
};

// The mark of a regular file. Throws as open_regular() does.
FileMark mark_of(const std::filesystem::path& path);

class Manifest {
 public:
  enum class Kind : uint8_t {
    file,   // proven by its fingerprint
    log,    // grows: proven by its first line, or a power cut has taken that
    folder  // proven by the fingerprints of all that is in it
  };

  // The manifest of `folder`, kept at `file`; nothing is written. Throws DamagedError for a file that is not
  // a manifest.
  Manifest(std::filesystem::path folder, std::filesystem::path file);
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  [[nodiscard]] bool exists() const { return exists_; }

  [[nodiscard]] bool lists(const std::string& name) const { return entries_.contains(name); }
  // Names in the list that something has.
  [[nodiscard]] std::vector<std::string> present() const;
  // The path of what has the name, or lies in the folder of that name, and is not proven to be the run's;
  // none: nothing there, or all of it is.
  [[nodiscard]] std::optional<std::filesystem::path> foreign(const std::string& name) const;

  // The calls below change the list. adopt() takes what is there under the name for the run's. The first two
  // change it in memory only, until write().
  void adopt(const std::string& name, Kind kind);
  void forget_all() { entries_.clear(); }
  // Writes the whole list instead of the old one, through the temporary path.
  void write(const std::filesystem::path& temporary);
  // The name enters: until close() whatever has it is the run's.
  void begin(const std::string& name, Kind kind);
  void close(const std::string& name);
  void forget(const std::string& name);

 private:
  struct Entry {
    Kind kind = Kind::file;
    bool closed = false;
    std::map<std::string, FileMark> marks;  // by name in the folder; "" is the file itself, or its first line
  };

  void read();
  void read_line(std::string_view line);
  void append(const std::string& name);
  [[nodiscard]] std::string line_of(const std::string& name) const;
  [[nodiscard]] std::map<std::string, FileMark> marks_of(const std::string& name, Kind kind) const;

  std::filesystem::path folder_, file_;
  std::map<std::string, Entry> entries_;
  bool exists_ = false;
  int64_t whole_bytes_ = 0;  // of lines that are whole
};

}  // namespace plimsoll
