// The variables of a shell script, as far as the script alone determines them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/shell/words.h"

namespace plimsoll {

class ShellVariables {
 public:
  using Values = std::vector<std::string>;  // of an array; a variable has one

  // Takes NAME=value, NAME+=value and NAME=(a b); false where the word is not one of these. In a branch or a
  // loop (`is_certain` false) what a variable is afterwards is not known.
  bool assign(const ShellWord& word, bool is_certain);
  void set(const std::string& name, Values values) { values_[name] = {std::move(values), true}; }
  void forget(const std::string& name) { values_[name] = {{}, false}; }
  [[nodiscard]] bool knows(const std::string& name) const;
  // The one value of a name; nothing where it is not known.
  [[nodiscard]] std::optional<std::string> value(std::string_view name) const;

  // The words that a word becomes. Unknown parts stay as they are written: $1, ${HOME}, $(nvidia-smi).
  [[nodiscard]] std::vector<std::string> expand(const ShellWord& word) const;

 private:
  struct Value {
    Values values;
    bool is_known = false;
  };
  struct Part {
    std::string text;
    bool may_split = false;
  };
  [[nodiscard]] std::vector<Part> parts_of(std::string_view text, int depth = 0) const;
  [[nodiscard]] std::optional<Values> lookup(std::string_view inside, int depth) const;
  [[nodiscard]] std::string joined(std::string_view text, int depth) const;
  // The output of commands that only take paths apart: $(cd "$(dirname "$0")" && pwd), dirname, basename, realpath.
  [[nodiscard]] std::optional<std::string> printed(std::string_view command, int depth) const;
  [[nodiscard]] std::optional<int64_t> arithmetic(std::string_view text, int depth) const;

  std::map<std::string, Value, std::less<>> values_;
};

// The script itself, as $0 and BASH_SOURCE name it: paths are relative to its folder.
inline constexpr std::string_view kThisScript = "./this.sh";

// Returns true if a variable's name may hold the character.
bool is_name_char(char c);

// Returns true if something that only a shell knows is left in a text.
bool is_unresolved(std::string_view text);

// +, -, *, / and % of whole numbers, as $((...)) has them; nothing for all else.
std::optional<int64_t> whole_arithmetic(std::string_view text);

}  // namespace plimsoll
