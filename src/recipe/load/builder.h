// Applies layers of keys to a Recipe and collects what is wrong with them.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/document/document.h"
#include "recipe/document/problems.h"
#include "recipe/model_files.h"
#include "recipe/option.h"
#include "recipe/recipe.h"
#include "recipe/translate/translate.h"

namespace plimsoll {

class RecipeBuilder {
 public:
  explicit RecipeBuilder(ModelFiles& models) : models_(models) {}
  // Keys of later calls replace those of earlier ones.
  void apply(const Node& root, const Source& source);
  void problem(const std::string& place, const std::string& message) { problems_.add(place, message); }
  // The recipe so far, with what follows from its keys filled in.
  [[nodiscard]] Recipe current() const;
  // The keys whose values come from the call of apply() numbered `first` or a later one; numbers start at 1.
  [[nodiscard]] std::vector<std::string> keys_since(int first) const;
  [[nodiscard]] int calls() const { return calls_; }
  void set_tool(const ToolVersion& tool) {
    translator_.set_tool(tool);
    is_named_ = true;
  }
  [[nodiscard]] bool is_named() const { return is_named_; }
  [[nodiscard]] const KeyReport& other_tools() const { return translator_.report(); }
  [[nodiscard]] bool states_precision() const;
  // Models and data sets that are nowhere on this machine.
  [[nodiscard]] std::vector<std::string> missing() const;
  // Keys of calls before `first` that have no meaning with the method and the optimizer count as not given.
  void forget_what_means_nothing(int first);
  // Leaves out keys of the file that the method does not have, and lists them in a note. An adapter to
  // continue from stays.
  void leave_out_of_other_methods(int first);
  // Checks keys against each other; `name` is the place of what is missing. Throws UsageError for all
  // problems.
  Recipe finish(const std::string& name);

 private:
  struct Given {
    std::string place;
    int call = 0;
  };

  void walk(const Node& map, const std::string& prefix, const Source& source);
  void visit(const Node& child, const std::string& key, const Source& source);
  void assign(const Option& option, const Node& node, const Source& source);
  // `key=null` of an override: resets the key to its default, ignoring all sources.
  void take_back(const Option& option, const Source& source);
  void take_back_group(const std::string& group, const Source& source);
  void forget_precision_parts();
  // The node with names of the hub replaced by paths of its cache; notes what is missing.
  Node on_this_machine(const std::string& key, const Node& node, const Source& source);
  // The children of a map; each that repeats a key is a problem and left out.
  std::vector<const Node*> distinct(const Node& map, const std::string& prefix, const Source& source);
  void report_unknown(const Node& child, const std::string& key, const Source& source);
  void advise_about_unknown();
  // Reports a family that does not exist here, before anything else that is wrong.
  void check_family();
  void check_task(const Recipe& recipe);
  void check_joined(const Recipe& recipe);
  void check_masks(const Recipe& recipe);
  void check_preference(const Recipe& recipe);
  void check_together(const Recipe& recipe);
  void take_glue_task(Recipe& recipe);
  void take_words(Recipe& recipe);
  void conflict(const std::string& key, const std::string& message);

  ModelFiles& models_;
  Recipe recipe_;
  std::map<std::string, Given> given_;
  std::map<std::string, int> taken_back_;                    // the call that did it, by key
  std::map<std::string, std::vector<std::string>> missing_;  // by key
  std::vector<std::string> unknown_;                         // of a tool's or a script's file
  Translator translator_;
  bool is_named_ = false;
  int calls_ = 0;
  Problems problems_;
};

}  // namespace plimsoll
