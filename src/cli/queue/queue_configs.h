// Changed copies of settings files that commands are given: --yaml-set, and steps of --on-oom.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "fleet/queue/store/config_copy.h"
#include "fleet/queue/store/store.h"

namespace plimsoll {

// The copies lie in the queue's folder, and are on the disk before the entry that needs them.
class ConfigCopies {
 public:
  explicit ConfigCopies(const queue::Store& store) : store_(store) {}
  ConfigCopies(const ConfigCopies&) = delete;
  ConfigCopies& operator=(const ConfigCopies&) = delete;
  // Removes the copies if the entry was not added: no command uses them then.
  ~ConfigCopies();
  void keep() { folders_.clear(); }
  // Makes copies with these changes ("FILE:key=value"), on top of those that were made before, and puts their
  // names into the command instead of the files'. Throws UsageError, with `option`, where the command names
  // no such file.
  void change(const std::vector<std::string>& texts, const std::string& option, queue::Command& command);

 private:
  struct Copied {
    std::vector<queue::ConfigChange> changes;
    std::string copy;  // that the command names; empty: the file itself
  };
  const queue::Store& store_;
  std::map<std::string, Copied> files_;
  std::vector<std::string> folders_;
};

// Takes "FILE:key=value" of YAML and JSON files out of a step of --on-oom; `rest` is the rest of the step.
std::vector<std::string> config_changes_of(const std::string& step, std::string& rest);

// The changes in the copies that a command names, a line each: "train.yaml: batch: 4 -> 2".
std::vector<std::string> config_changes_in(const queue::Store& store, const std::vector<std::string>& words,
                                           const std::vector<std::string>& environment);

}  // namespace plimsoll
