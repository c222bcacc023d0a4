// plimsoll queue cancel, pause, resume, drain, retry, priority, wait, rescue.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "base/format.h"
#include "base/print.h"
#include "base/strings.h"
#include "cli/queue/queue_commands.h"
#include "fleet/queue/entry_steps.h"
#include "fleet/queue/processes/attempt.h"
#include "fleet/queue/store/machine_record.h"

namespace plimsoll {
namespace {

using queue::Entry;
using queue::State;
using queue::Store;

constexpr const char* kJsonHelp = "JSON output (docs/reference/json.md)";

struct SteerArguments {
  std::vector<int64_t> ids;
  int priority = 0;
  bool json = false;
  std::string group;  // instead of ids
};

// Prints the entries as they are now, as `show` does.
void print_entries(Store& store, const std::vector<int64_t>& ids) {
  nlohmann::ordered_json root = {{"entries", nlohmann::ordered_json::array()}};
  for (const int64_t id : ids) root["entries"].push_back(entry_json(store, store.entry(id)));
  print(json_text(root));
}

// Prints the state of the queue.
void print_queue(Store& store, bool json, const char* text) {
  if (!json) return print(text);
  print(json_text(nlohmann::ordered_json{{"paused", store.paused()}, {"draining", store.draining()}}));
}

std::string printed_title(const Entry& entry) { return formatted("{} {}", entry.id, printable(entry.name)); }

// The worker does it too, where there is one; the supervisor needs none.
void ask_supervisor(const Store& store, const Entry& entry) {
  if (entry.stop_requested) queue::ask_to_end(store.folder_of(entry.id, entry.attempts));
}

std::string hold(Store& store, int64_t id) {
  const Entry entry = store.change(id, [id](Entry& found) {
    if (found.state == State::running && !found.recipe)
      throw UsageError(printed_title(found) +
                       " runs, and only recipes can be paused and resumed: cancel it, or let it end");
    if (is_begun(found.state)) {
      found.stop_requested = found.hold_requested = true;
    } else if (found.state == State::waiting || queue::is_held_by_another(found)) {
      found.state = State::held;
      found.held_by = 0;
      found.note = "paused; continue it with plimsoll queue resume " + std::to_string(id);
    } else {
      return false;
    }
    return true;
  });
  ask_supervisor(store, entry);
  return formatted("{}: {}", printed_title(entry),
                   entry.stop_requested ? "saves and stops" : std::string(name_of(entry.state)));
}

void let_go_what_follows(Store& store) {
  std::vector<Entry> others = store.open_entries();
  let_go_what_may_follow(store, others);
}

std::string let_go(Store& store, int64_t id) {
  const Entry entry = store.change(id, [](Entry& found) {
    if (found.state != State::held)
      throw UsageError(formatted("{} is {}, not held", printed_title(found), name_of(found.state)));
    found.state = State::waiting;
    found.note.clear();
    return true;
  });
  let_go_what_follows(store);
  return printed_title(entry) + ": waiting";
}

std::string retry(Store& store, int64_t id) {
  const Entry entry = store.change(id, [](Entry& found) {
    if (!is_over(found.state)) {
      std::string why =
          formatted("{} is {}: there is nothing to repeat", printed_title(found), name_of(found.state));
      if (found.state == State::held)
        why += formatted("; plimsoll queue resume {} continues it ({})", found.id, printable(found.note));
      throw UsageError(why);
    }
    found.state = State::waiting;
    found.note.clear();
    found.promised.reset();
    return true;
  });
  let_go_what_follows(store);
  return printed_title(entry) + ": waiting";
}

std::string set_priority(Store& store, int64_t id, int priority) {
  return formatted("{}: priority {}",
                   printed_title(store.change(id,
                                              [&](Entry& found) {
                                                found.priority = priority;
                                                return true;
                                              })),
                   priority);
}

// Over, or held: it needs a person.
bool has_settled(const Entry& entry) { return is_over(entry.state) || entry.state == State::held; }

// The entries of a group that a command applies to.
std::vector<int64_t> ids_of(Store& store, const SteerArguments& arguments, bool (*is_meant)(const Entry&)) {
  if (arguments.group.empty()) return arguments.ids;
  if (!arguments.ids.empty()) throw UsageError("--group replaces the ids: give one of them");
  std::vector<int64_t> ids;
  for (const Entry& one : store.entries_of(arguments.group))
    if (is_meant(one)) ids.push_back(one.id);
  return ids;
}

ExitCode wait(const SteerArguments& arguments) {
  Store store(queue::queue_folder());
  std::vector<int64_t> ids = ids_of(store, arguments, [](const Entry&) { return true; });
  if (ids.empty())
    for (const Entry& one : store.open_entries()) ids.push_back(one.id);
  bool good = true, told = false;
  for (const int64_t id : ids) {
    Entry entry = store.entry(id);
    if (!told && !has_settled(entry) && !queue::has_worker(store.folder())) {
      say("note    no worker runs: plimsoll queue run starts what waits");
      told = true;
    }
    for (; !has_settled(entry); entry = store.entry(id)) {
      store.require_in_place();
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    good &= entry.state == State::done;
    if (arguments.json) continue;
    print(formatted("{}: {}{}\n", printed_title(entry), name_of(entry.state),
                    entry.note.empty() ? "" : ", " + printable(entry.note)));
    flush_output();
  }
  if (arguments.json) print_entries(store, ids);
  return good ? ExitCode::ok : ExitCode::stopped;
}

template <class Change>
ExitCode for_each_entry(const SteerArguments& arguments, bool (*is_meant)(const Entry&), Change&& change) {
  Store store(queue::queue_folder());
  const std::vector<int64_t> ids = ids_of(store, arguments, is_meant);
  if (ids.empty() && arguments.group.empty())
    throw UsageError("entries are missing: their ids, or --group NAME");
  for (const int64_t id : ids) {
    const std::string said = change(store, id);
    if (!arguments.json) print(said + "\n");
  }
  if (ids.empty() && !arguments.json)
    print(formatted("nothing was done: no entry of the group {} is in a state for it\n",
                    printable(arguments.group)));
  if (arguments.json) print_entries(store, ids);
  return ExitCode::ok;
}

bool is_open(const Entry& entry) { return !is_over(entry.state); }
bool is_held(const Entry& entry) { return entry.state == State::held; }
// An entry of a group that can be held: a running command has no place to stop at, and continues.
bool can_be_held(const Entry& entry) { return is_open(entry) && (entry.recipe || !is_begun(entry.state)); }
bool has_failed(const Entry& entry) { return entry.state == State::failed || entry.state == State::canceled; }

ExitCode pause_all(bool paused, bool json) {
  Store store(queue::queue_folder());
  store.pause(paused);
  if (!paused) store.drain(false);
  print_queue(store, json, paused ? "paused: running jobs continue, nothing new starts\n" : "resumed\n");
  return ExitCode::ok;
}

// The worker ends when what runs is over; with `wait` this command does too.
ExitCode drain(bool wait, bool json) {
  Store store(queue::queue_folder());
  if (!queue::has_worker(store.folder())) throw UsageError("no worker runs: there is nothing to drain");
  store.drain(true);
  print_queue(store, json,
              "draining: nothing new starts, and the worker ends with what runs; what waits stays\n");
  flush_output();
  while (wait && queue::has_worker(store.folder())) {
    if (!store.draining()) break;  // the worker is about to end, or the request was taken back
    store.require_in_place();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  return ExitCode::ok;
}

void add_drain(CLI::App& group, Action& action) {
  auto wait = std::make_shared<bool>(false), json = std::make_shared<bool>(false);
  CLI::App* command =
      group.add_subcommand("drain", "start nothing new, and end the worker when running jobs end");
  command->add_flag("--wait", *wait, "return when the worker has ended");
  command->add_flag("--json", *json, kJsonHelp);
  command->callback([wait, json, &action] { action = [wait, json] { return drain(*wait, *json); }; });
}

bool is_of_all(const SteerArguments& arguments) { return arguments.ids.empty() && arguments.group.empty(); }

CLI::App* add_one(CLI::App& group, Action& action, const char* name, const char* summary, bool ids_needed,
                  std::function<ExitCode(const SteerArguments&)> run) {
  auto arguments = std::make_shared<SteerArguments>();
  CLI::App* command = group.add_subcommand(name, summary);
  CLI::Option* ids = command->add_option("id", arguments->ids, "ids of jobs; none: the whole queue");
  command->add_option("--group", arguments->group, "all jobs of a group")->type_name("NAME");
  if (ids_needed) ids->description("ids of jobs");
  if (std::string_view(name) == "priority")
    command->add_option("--to", arguments->priority, "the new priority; higher starts first")->required();
  command->add_flag("--json", arguments->json, kJsonHelp);
  command->callback(
      [arguments, run = std::move(run), &action] { action = [arguments, run] { return run(*arguments); }; });
  return command;
}

}  // namespace

std::string cancel_entry(Store& store, int64_t id) {
  const Entry entry = store.change(id, [](Entry& found) {
    if (is_over(found.state)) return false;
    if (is_begun(found.state)) {
      found.stop_requested = true;
      found.hold_requested = false;
    } else {
      found.state = State::canceled;
      found.note.clear();
    }
    return true;
  });
  ask_supervisor(store, entry);
  // It is not known of a damaged row whether it runs, and as which attempt.
  if (!entry.damage.empty())
    for (const queue::Attempt& attempt : store.attempts(id))
      if (!attempt.ended) queue::ask_to_end(store.folder_of(id, attempt.number));
  return formatted("{}: {}", printed_title(entry),
                   entry.stop_requested ? "asked to end" : std::string(name_of(entry.state)));
}

namespace {

// Cancels jobs, and prints those that wait for them, and for these in turn: none of them starts.
ExitCode cancel(const SteerArguments& arguments) {
  std::set<int64_t> gone;
  std::vector<Entry> open;
  const ExitCode code = for_each_entry(arguments, is_open, [&](Store& store, int64_t id) {
    const std::string said = cancel_entry(store, id);
    gone.insert(id);
    open = store.open_entries();
    return said;
  });
  std::vector<std::string> waiting;
  for (const Entry& entry : open) {  // by their ids: a job comes after earlier ones
    const auto is_gone = [&](int64_t id) { return gone.contains(id); };
    if (is_begun(entry.state) || is_gone(entry.id) || !std::ranges::any_of(entry.after, is_gone)) continue;
    gone.insert(entry.id);
    waiting.push_back(std::to_string(entry.id));
  }
  if (!waiting.empty() && !arguments.json)
    print(formatted("{} {} after what was canceled, and {} not start: plimsoll queue cancel {}\n",
                    join(waiting, ", "), waiting.size() == 1 ? "comes" : "come",
                    waiting.size() == 1 ? "does" : "do", join(waiting, " ")));
  return code;
}

ExitCode rescue_queue() {
  const queue::Rescued rescued = queue::rescue(queue::queue_folder());
  print(formatted("kept {} entries and {} attempts; the damaged database is {}\n", rescued.entries,
                  rescued.attempts, printable(rescued.damaged.string())));
  return ExitCode::ok;
}

}  // namespace

void add_queue_steering(CLI::App& group, Action& action) {
  group.add_subcommand("rescue", "save what can be read of a damaged database into a new one")
      ->callback([&action] { action = rescue_queue; });
  add_one(group, action, "cancel", "cancel jobs: stop running ones, remove waiting ones", true, cancel);
  add_one(group, action, "pause",
          "pause jobs: running recipes save and stop; without a job: start nothing new", false,
          [](const SteerArguments& arguments) {
            return is_of_all(arguments) ? pause_all(true, arguments.json)
                                        : for_each_entry(arguments, can_be_held, hold);
          });
  add_one(group, action, "resume", "resume held jobs; without a job: the queue", false,
          [](const SteerArguments& arguments) {
            return is_of_all(arguments) ? pause_all(false, arguments.json)
                                        : for_each_entry(arguments, is_held, let_go);
          });
  add_drain(group, action);
  add_one(group, action, "retry", "retry jobs that ended; recipes continue from their checkpoint", true,
          [](const SteerArguments& arguments) { return for_each_entry(arguments, has_failed, retry); });
  add_one(group, action, "priority", "change the priority of jobs", true,
          [](const SteerArguments& arguments) {
            return for_each_entry(arguments, is_open, [&](Store& store, int64_t id) {
              return set_priority(store, id, arguments.priority);
            });
          });
  add_one(group, action, "wait", "wait until jobs are done or held; without a job: all", false, wait);
}

}  // namespace plimsoll
