// A folder with rows in a.jsonl, for tests that load a recipe or a script as a file.
#pragma once

#include <gtest/gtest.h>

#include <concepts>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "files/test_folder.h"
#include "recipe/load/load.h"

namespace plimsoll {

class RecipeFiles : public testing::Test {
 protected:
  // `name` is the file that is loaded where a test says no other; its ending decides how it is read.
  explicit RecipeFiles(std::string name = "q.yaml") : name_(std::move(name)) { write("a.jsonl", "{}"); }

  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }
  // Lists in braces are values of --set, not members of Overrides.
  template <std::same_as<Overrides> T>
  [[nodiscard]] LoadedRecipe load(const std::string& text, const T& overrides,
                                  const std::string& name = "") const {
    const std::string file = name.empty() ? name_ : name;
    write(file, text);
    return load_recipe((folder_ / file).string(), overrides);
  }
  [[nodiscard]] LoadedRecipe load(const std::string& text, const std::vector<std::string>& sets = {},
                                  const std::string& name = "") const {
    Overrides overrides;
    overrides.sets = sets;
    return load(text, overrides, name);
  }
  [[nodiscard]] Recipe recipe(const std::string& text, const std::vector<std::string>& sets = {}) const {
    return load(text, sets).recipe;
  }
  [[nodiscard]] std::string error_of(const std::string& text, const std::vector<std::string>& sets = {},
                                     const std::string& name = "") const {
    return error_of_call([&] { (void)load(text, sets, name); });
  }
  template <std::same_as<Overrides> T>
  [[nodiscard]] std::string error_of(const std::string& text, const T& overrides) const {
    return error_of_call([&] { (void)load(text, overrides); });
  }
  // Keys of other tools that have no effect.
  [[nodiscard]] static std::vector<std::string> notes(const LoadedRecipe& loaded) {
    std::vector<std::string> theirs;
    for (const auto& note : loaded.other_tools.no_effect) theirs.push_back(note.theirs);
    return theirs;
  }

 private:
  template <typename Call>
  static std::string error_of_call(const Call& call) {
    const std::string message = message_of<UsageError>(call);
    return message.empty() ? "no error" : message;
  }

  TestFolder own_;
  std::string name_;

 protected:
  std::filesystem::path folder_ = own_.path();
};

}  // namespace plimsoll
