// `--yaml-set FILE:key=value`: a copy of another program's YAML or JSON file with keys changed.
#pragma once

#include <string>
#include <vector>

namespace plimsoll::queue {

struct ConfigChange {
  std::string file;
  std::string key;    // "a.b.0.c": keys of maps, and of lists the place from 0
  std::string value;  // YAML
};

// "FILE:key=value". Throws UsageError for another text.
ConfigChange read_config_change(const std::string& text);

// `text` with the changes; a key that is not there is added. JSON where the name ends in .json, else YAML:
// values, quotes, tags and the order of keys stay, comments go, and what an alias stands for is written out.
// Throws UsageError that names file and key. `told` gets a line of each change: "a.b: 1 -> 2".
std::string changed_config(const std::string& text, const std::string& name,
                           const std::vector<ConfigChange>& changes, std::vector<std::string>& told);

}  // namespace plimsoll::queue
