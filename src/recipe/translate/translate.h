// Translates other tools' keys into ours, layer by layer, before a builder reads them.
#pragma once

#include <set>
#include <string>

#include "recipe/translate/layer.h"

namespace plimsoll {

class Translator {
 public:
  // The first layer is a recipe of this tool, whatever it looks like.
  void set_tool(const ToolVersion& tool) { named_ = tool; }
  // The layer's tree in our keys. `before` is the recipe of the earlier layers. Unknown keys stay, for the
  // builder to report.
  Node translate(const Node& text, const Source& source, const Recipe& before, Problems& problems);
  [[nodiscard]] const KeyReport& report() const { return report_; }
  void note(const std::string& topic, const std::string& text) { report_.notes[topic] = text; }

 private:
  Node own_keys(const Node& map, const std::string& prefix, Layer& layer);
  // Reads the child where it is one of theirs. Returns false for another.
  bool read_theirs(const Node& child, const std::string& key, Layer& layer);

  int layers_ = 0;
  std::optional<ToolVersion> named_;
  std::set<std::string, std::less<>> used_;  // keys that others of the file use as ${key}
  Parts parts_;
  KeyReport report_;
};

// The tool that a recipe was written for, by the key that names its model; nothing for our own and for those
// of training scripts.
std::optional<Tool> tool_of(const Node& root);

}  // namespace plimsoll
