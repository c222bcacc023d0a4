// The problems of a recipe, with the place of each.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"

namespace plimsoll {

// Several problems with a recipe, one a line.
struct RecipeError : UsageError {
  using UsageError::UsageError;
};

// Problems with their places, one a line. A file can hold any number; the first ones are enough.
class Problems {
 public:
  // A problem with a `key` is gone once forget() is called for that key, by a layer after `layer`.
  void add(const std::string& place, const std::string& message, const std::string& key = "", int layer = 0);
  void add_first(const std::string& place, const std::string& message);
  void forget(const std::string& key, int layer);
  // The last line, after all problems: what to do about some of them together.
  void set_advice(std::string advice) { advice_ = std::move(advice); }
  [[nodiscard]] size_t count() const { return count_; }
  [[nodiscard]] bool is_full() const { return lines_.size() == kShown; }
  void throw_if_any() const;

 private:
  static constexpr size_t kShown = 20;
  struct Line {
    std::string key;
    std::string text;
    int layer = 0;
  };
  std::vector<Line> lines_;
  size_t count_ = 0;
  std::string advice_;
};

// The name of a recipe that is read from standard input, and what it is called.
inline constexpr const char* kStandardInput = "-";
inline constexpr const char* kStandardInputWords = "standard input";

// The source of a tree of keys.
struct Source {
  std::string name;              // "recipes/q.yaml", "--set method.r=x"
  bool has_lines = false;        // places are NAME:LINE
  std::filesystem::path folder;  // relative paths start here

  // key=null was written out, on the command line or in the environment: it takes a key back.
  bool takes_back = false;

  [[nodiscard]] std::string place(int line) const;
};

}  // namespace plimsoll
