// Finds the rows of a JSON file: the objects of its list, without parsing what they hold.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace plimsoll {

// A list of objects ([{...}, ...]), or an object that has one ({"version": 1, "data": [{...}, ...]}). Fed
// with the file piece by piece; only what stands between the rows is checked here.
class JsonListScanner {
 public:
  struct Found {
    int64_t start = 0;  // offset of '{'
    int64_t end = 0;    // past '}'
    int64_t line = 0;   // of '{', from 1
  };
  enum class Kind : uint8_t {
    list,
    lines,  // one object after another: JSON Lines under the name .json
    none    // an object without a list of objects
  };

  JsonListScanner(std::string path, std::function<void(const Found&)> on_row)
      : path_(std::move(path)), on_row_(std::move(on_row)) {}

  // Continues between two rows instead of at a file's start.
  void start_within_list() { state_ = State::item_or_end; }
  // False once no more is needed: the file holds lines. Throws DamagedError.
  bool feed(std::string_view chunk);
  // The rows are a member of an object.
  [[nodiscard]] bool is_within_object() const { return root_is_object_ && has_list_; }
  // Returns the kind of file that it was. Throws DamagedError when it ended too early.
  Kind finish() const;

 private:
  enum class State : uint8_t {
    root,
    key_or_end,
    colon,
    value,
    comma_or_brace,
    item_or_end,
    item,
    comma_or_bracket,
    nested,  // within a row, or a value that is no row
    text,    // within a string
    scalar,  // within a number, true, false or null
    done
  };

  void step(char c);
  void open_value(char c);
  void close_nested();
  void end_text();
  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void fail_of_two_lists() const;

  std::string path_;
  std::string key_, list_key_;  // of the root object: the last one's beginning, and that of the rows
  std::function<void(const Found&)> on_row_;
  State state_ = State::root;
  State outer_ = State::root;  // what a string or scalar stands in
  bool root_is_object_ = false;
  bool has_list_ = false;
  bool is_row_ = false;         // the nested value
  bool at_list_start_ = false;  // of an object's member: rows if an object follows
  bool escaped_ = false;
  int64_t depth_ = 0;  // brackets open within the nested value
  int64_t offset_ = 0;
  int64_t line_ = 1;
  Found row_;
  Kind kind_ = Kind::none;
};

}  // namespace plimsoll
