// The commands of `plimsoll queue`.
#pragma once

#include <string>

#include "cli/commands.h"
#include "fleet/queue/store/store.h"

namespace plimsoll {

void add_queue_add(CLI::App& group, Action& action);
void add_queue_run(CLI::App& group, Action& action);
void add_queue_unit(CLI::App& group, Action& action);
void add_queue_supervise(CLI::App& group, Action& action);
void add_queue_list(CLI::App& group, Action& action);
void add_queue_show(CLI::App& group, Action& action);
void add_queue_logs(CLI::App& group, Action& action);
// cancel, pause, resume, drain, retry, priority, wait, rescue.
void add_queue_steering(CLI::App& group, Action& action);

// Ends an entry with all that it started, or takes it out; what became of that.
std::string cancel_entry(queue::Store& store, int64_t id);

// This program's own file.
std::string own_program();
// "; no worker runs: ..." or empty.
std::string worker_note(const queue::Store& store);
nlohmann::ordered_json entry_json(const queue::Store& store, const queue::Entry& entry,
                                  const std::vector<queue::Attempt>& attempts);
nlohmann::ordered_json entry_json(queue::Store& store, const queue::Entry& entry);

}  // namespace plimsoll
