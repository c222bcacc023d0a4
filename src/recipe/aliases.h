// The names that other tools give to our keys. A row is one meaning: what it becomes here, how its value is
// read, and the keys of each tool. Every key of their recipes is mapped, has no effect here for a stated
// reason, or is refused: nothing is dropped in silence.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plimsoll {

enum class Tool : unsigned char { llama_factory, axolotl, torchtune, trl, script };
inline constexpr std::array<std::pair<Tool, std::string_view>, 5> kTools = {
    {{Tool::llama_factory, "LLaMA-Factory"},
     {Tool::axolotl, "axolotl"},
     {Tool::torchtune, "torchtune"},
     {Tool::trl, "TRL and transformers"},
     {Tool::script, "a training script"}}};
std::string_view to_string(Tool tool);

enum class Reading : unsigned char {
  plain,     // the value as it stands
  any,       // the same, nothing among them
  length,    // a whole number, or nothing, which is a value
  flag,      // true or false, spelt as YAML 1.1 and Python do
  inverse,   // the same, meaning the opposite
  names,     // a list, or words with commas between them
  whole,     // a whole number, also written 3.0
  limit,     // the same; -1 and no value mean that there is no limit
  path,      // relative to the recipe, or, where nothing is there, to the working directory
  words,     // one of Alias::words
  off,       // accepted while it is off; `note` is what does not exist here
  no_effect  // any value; `note` gives the reason
};

struct Word {
  std::string_view theirs;
  std::string_view ours;  // "" has no effect; "!why" is refused
};

struct Alias {
  std::string_view to;  // a key of ours; "@part": combined with others (parts.h); "" for off and no_effect
  Reading reading = Reading::plain;
  std::string_view note;
  // By tool: their keys with blanks between them; a.b lies inside a.
  std::array<std::string_view, kTools.size()> keys;
  std::vector<Word> words;
};

const std::vector<Alias>& aliases();
// The row of a key. Where tools mean different things by it, `tool` decides; nullptr where no tool has the
// key.
const Alias* find_alias(std::string_view key, std::optional<Tool> tool);
// The row of the keys of which this is the beginning, the last word cut short ("adam_eps"), as argparse takes an argument;
// nullptr where they are of several rows.
const Alias* find_beginning(std::string_view key, Tool tool);
// Returns true if some key of theirs lies inside this one.
bool is_alias_group(std::string_view key);
// Every key of theirs, once.
const std::vector<std::string>& alias_keys();

// The table for docs/howto/other-tools.md.
std::string aliases_markdown();

}  // namespace plimsoll
