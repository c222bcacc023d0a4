// One layer of keys (a file, PLIMSOLL_SET, one --set) while other tools' keys become ours. Some of our keys
// follow from several of theirs: rows of the table whose target starts with '@' set parts, which the
// functions of combine.h put together. Parts last over layers: --set gradient_accumulation_steps=4 meets the
// file's micro-batch.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/aliases.h"
#include "recipe/document/document.h"
#include "recipe/document/problems.h"
#include "recipe/recipe.h"
#include "recipe/translate/defaults.h"

namespace plimsoll {

// A value of theirs, with its key.
struct Said {
  Node value;
  std::string key;
  std::string as_written;  // "lora_r: 8"
  int layer = 0;
};

// The report of other tools' keys.
struct KeyReport {
  struct Mapped {
    std::string place;   // "train.yaml:3"
    std::string theirs;  // "lora_r: 8"
    std::string ours;    // "method.r: 8"
  };
  struct NoEffect {
    std::string place;
    std::string theirs;
    std::string reason;
    bool is_off = false;  // nothing was asked for
  };
  std::optional<Tool> tool;
  ToolVersion version;      // whose defaults are taken
  bool of_scripts = false;  // of TRL and transformers: a recipe of transformers' example scripts
  std::string model_name;   // as the tool's recipe names the model
  std::vector<Mapped> mapped;
  std::vector<NoEffect> no_effect;
  std::vector<std::string> defaults;         // "schedule.name: linear", which the tool has and we have not
  std::map<std::string, std::string> notes;  // about the recipe as a whole, by topic
  std::map<std::string, std::string> once;   // keys that earlier versions read otherwise, with what they read
  [[nodiscard]] bool empty() const { return mapped.empty() && no_effect.empty(); }
};

using Parts = std::map<std::string, Said, std::less<>>;

class Layer {
 public:
  Layer(int number, const Source& source, std::optional<Tool> tool, const Recipe& before, Parts& parts,
        Problems& problems, KeyReport& report);

  [[nodiscard]] const Source& source() const { return source_; }
  [[nodiscard]] std::optional<Tool> tool() const { return tool_; }
  // The version of the tool, assumed or named.
  [[nodiscard]] Version version() const { return report_.version.version; }
  [[nodiscard]] bool is_of_scripts() const { return report_.of_scripts; }
  // True if this layer is a tool's recipe, rather than keys added to one.
  [[nodiscard]] bool is_recipe() const { return is_recipe_; }
  void set_recipe(bool is_recipe) { is_recipe_ = is_recipe; }
  // Reads one key of theirs by its row.
  void read(const Alias& row, const std::string& key, const Node& node);
  // Says a part by what a file of theirs holds.
  void say(const std::string& name, Said said);
  // Sets the rest of the text, without their keys.
  void set_own(const Node* own) { own_ = own; }

  // "@bf16" of this layer or an earlier one, or nullptr.
  [[nodiscard]] const Said* part(std::string_view name) const;
  // Returns true if this layer has one of them.
  [[nodiscard]] bool says(std::initializer_list<std::string_view> names) const;
  // This layer's node of a key of ours, written or emitted; nullptr where it has none.
  [[nodiscard]] const Node* given(std::string_view key) const;
  // Returns true if some key that starts with the prefix was emitted.
  [[nodiscard]] bool emits(std::string_view prefix) const;
  // The method as far as it is known.
  [[nodiscard]] MethodType method() const;
  [[nodiscard]] const Recipe& before() const { return before_; }

  // Says a key of ours; `from` are the keys of theirs that it follows from.
  void emit(std::string_view key, Node value, const std::vector<const Said*>& from);
  void emit(std::string_view key, std::string_view text, const std::vector<const Said*>& from);
  // Changes what was emitted of a key: `from` is one more key that it follows from. False where nothing was.
  bool change(std::string_view key, const Said& from, const std::function<void(Node&)>& change);
  // As emit() where neither this layer nor a key of theirs has it.
  void emit_default(std::string_view key, std::string_view text);
  void ignore(const Said& said, const std::string& reason, bool is_off = false);
  // A key without effect has one now: a later layer sets what it needs.
  void withdraw(const Said& said);
  // A note about the recipe as a whole; later layers replace that of their topic.
  void note(const std::string& topic, const std::string& text) { report_.notes[topic] = text; }
  void forget_note(const std::string& topic) { report_.notes.erase(topic); }
  // Records what earlier versions made of this recipe: runs that they began continue so.
  void read_once_as(const std::string& key, const std::string& value) { report_.once[key] = value; }
  // With a `key` of ours the problem is gone where a later layer sets that key.
  void refuse(const Said& said, const std::string& message, const std::string& key = "");
  // The same, where this layer sets the key as well.
  void refuse_until_later(const Said& said, const std::string& message, const std::string& key);
  // Resolves a path of theirs: it means the recipe's folder, or the first of the working directory and the folders above
  // the recipe's that has it.
  [[nodiscard]] Node locate(const Node& path) const;

  // The tree of a file of theirs, JSON or YAML; a map is its own. Throws UsageError.
  [[nodiscard]] Node read_file(const Node& path_or_map) const;
  // Returns true if the recipe so far has a place for offloaded tensors: a disk, or the host of a GPU.
  [[nodiscard]] bool has_offload_target() const;

  // Takes back keys that have no meaning with the method and the optimizer, as their tools do.
  void drop_what_means_nothing();
  // The keys of ours to append to the layer; problems where they and the layer's own differ.
  [[nodiscard]] std::vector<Node> take();

 private:
  struct Emitted {
    Node node;
    std::vector<const Said*> from;
    bool is_default = false;
  };
  [[nodiscard]] std::string place(const Node& node) const { return source_.place(node.line); }
  [[nodiscard]] Recipe with_emitted() const;
  [[nodiscard]] bool same(std::string_view key, const Node& a, const Node& b) const;
  void report(const std::string& key, const Emitted& emitted);

  int number_;
  const Source& source_;
  std::optional<Tool> tool_;
  const Recipe& before_;
  Parts& parts_;
  Problems& problems_;
  KeyReport& report_;
  const Node* own_ = nullptr;
  bool is_recipe_ = false;
  std::map<std::string, Emitted, std::less<>> emitted_;
  std::vector<std::unique_ptr<Said>> said_;  // of rows that need no other key
};

// A value in one line, as a recipe writes it.
std::string as_text(const Node& node);
// The node of a key, nested or dotted; nullptr where it is absent.
const Node* find_node(const Node& map, std::string_view key);

}  // namespace plimsoll
