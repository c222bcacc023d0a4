// plimsoll queue list, show, logs: what the queue holds.
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <map>
#include <thread>

#include "base/format.h"
#include "base/print.h"
#include "base/screen.h"
#include "base/strings.h"
#include "base/units.h"
#include "cli/queue/queue_commands.h"
#include "cli/queue/queue_configs.h"
#include "fleet/devices/gpu.h"
#include "fleet/queue/entry_steps.h"
#include "fleet/queue/processes/memory_history.h"
#include "fleet/queue/store/machine_record.h"
#include "fleet/top/progress.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;
using queue::Attempt;
using queue::Entry;
using queue::State;
using queue::Store;

constexpr size_t kShownOver = 20;

struct ShowArguments {
  int64_t id = 0;
  int attempt = 0;
  bool json = false, all = false, follow = false;
  std::string group;
};

std::string date(double seconds) {
  const auto whole = static_cast<time_t>(seconds);
  tm local{};
  localtime_r(&whole, &local);
  char text[32];
  return {text, strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local)};
}

std::string reserved(const queue::Need& need) {
  const std::string host = need.host_bytes > 0 ? format_bytes(need.host_bytes) : "-";
  if (need.devices == 0 && need.processes > 1) return formatted("{} ({} processes)", host, need.processes);
  if (need.devices == 0) return host;
  return formatted("{} x {} + {}", need.devices, format_bytes(need.device_bytes), host);
}

std::string with_card(const std::string& text, const std::string& card) {
  return card.empty() ? text : formatted("{} for {}", text, printable(card));
}

// An attempt's memory over its time, in a line, and whether it grows.
std::string memory_text(const Store& store, const Attempt& attempt) {
  const auto history = queue::kept_memory(store.folder_of(attempt.entry, attempt.number));
  if (!history || history->bytes().size() < 2) return "";
  constexpr size_t kColumns = 60;
  const std::vector<int64_t>& bytes = history->bytes();
  const size_t spans = (bytes.size() + kColumns - 1) / kColumns;  // to a column
  const auto top = static_cast<double>(std::max<int64_t>(1, *std::max_element(bytes.begin(), bytes.end())));
  std::vector<double> shares;
  for (size_t i = 0; i < bytes.size(); i += spans) {
    const auto from = bytes.begin() + static_cast<std::ptrdiff_t>(i);
    const auto to = bytes.begin() + static_cast<std::ptrdiff_t>(std::min(i + spans, bytes.size()));
    shares.push_back(static_cast<double>(*std::max_element(from, to)) / top);
  }
  std::string text = "\n    memory " + format_blocks(shares);
  if (const auto growth = queue::growth_of(*history)) {
    text += formatted("\n    grew by {} a minute until the end: a leak, if every step did the same work",
                      format_bytes(static_cast<int64_t>(growth->bytes_per_second * 60)));
    if (attempt.need.devices == 0 && !attempt.ended)
      text += "; beyond its reservation in " +
              format_seconds(queue::seconds_until(*growth, attempt.need.host_bytes));
  }
  return text;
}

nlohmann::ordered_json memory_json(const Store& store, const Attempt& attempt) {
  const auto history = queue::kept_memory(store.folder_of(attempt.entry, attempt.number));
  if (!history) return nullptr;
  const auto growth = queue::growth_of(*history);
  return {{"span_seconds", history->span_seconds()},
          {"bytes", history->bytes()},
          {"growth_bytes_per_second",
           growth ? nlohmann::ordered_json(growth->bytes_per_second) : nlohmann::ordered_json(nullptr)}};
}

nlohmann::ordered_json attempt_json(const Store& store, const Attempt& attempt) {
  return {{"number", attempt.number},
          {"started", attempt.started},
          {"ended", attempt.ended ? nlohmann::ordered_json(*attempt.ended) : nlohmann::ordered_json(nullptr)},
          {"device_bytes", attempt.need.device_bytes},
          {"host_bytes", attempt.need.host_bytes},
          {"processes", attempt.need.processes},
          {"devices", attempt.cards},
          {"job", attempt.job},
          {"peak_device_bytes", attempt.card_peak_bytes > 0 ? nlohmann::ordered_json(attempt.card_peak_bytes)
                                                            : nlohmann::ordered_json(nullptr)},
          {"peak_host_bytes", attempt.peak_bytes > 0 ? nlohmann::ordered_json(attempt.peak_bytes)
                                                     : nlohmann::ordered_json(nullptr)},
          {"outcome", attempt.outcome},
          {"words", attempt.words},
          {"environment", attempt.environment},
          {"log", (store.folder_of(attempt.entry, attempt.number) / "log").string()}};
}

// All that are open, and of the others the last ones unless all are asked for.
std::vector<Entry> shown_entries(Store& store, const ShowArguments& arguments) {
  if (!arguments.group.empty()) return store.entries_of(arguments.group);
  if (arguments.all) return store.entries();
  return store.open_entries_and_last(kShownOver);
}

// As the worker has them now; none where none runs.
std::vector<queue::MachineCard> cards_of_worker(const Store& store) {
  if (!queue::has_worker(store.folder())) return {};
  return queue::recorded_machine(store.folder()).value_or(queue::Machine{}).cards;
}

// The memory that a running job has on a card beyond its reservation; else the queue's note.
std::string note_of(Store& store, const Entry& entry) {
  if (entry.state != State::running || entry.need.devices == 0) return entry.note;
  const std::vector<Attempt> attempts = store.attempts(entry.id);
  const int64_t most = attempts.empty() ? 0 : attempts.back().card_peak_bytes;
  if (most <= entry.need.device_bytes) return entry.note;
  return formatted("took {} on a card, more than it reserved{}", format_bytes(most),
                   entry.note.empty() ? "" : "; " + entry.note);
}

// The progress of a training; nothing before it has begun.
std::optional<top::Progress> progress_of(const Entry& entry) {
  if (entry.attempts == 0 || entry.output.empty()) return std::nullopt;
  return top::read_progress(entry.output);
}

std::string list_text(const std::vector<Entry>& entries, Store& store) {
  TextTable table({true, false, false, true, true, true, true, true, true, false});
  table.add_row({"id", "name", "state", "reserved", "threads", "priority", "tries", "loss", "eval", "note"});
  for (const Entry& one : entries) {
    const auto progress = progress_of(one);
    table.add_row({std::to_string(one.id), one.name, std::string(name_of(one.state)), reserved(one.need),
                   std::to_string(one.need.threads), std::to_string(one.priority),
                   std::to_string(one.attempts), top::loss_words(progress ? progress->loss : std::nullopt),
                   top::loss_words(progress ? progress->best_loss : std::nullopt), note_of(store, one)});
  }
  table.may_go({5, 4, 6, 3});
  std::string text = table.render("  ", output_columns());
  for (const queue::MachineCard& card : cards_of_worker(store))
    if (!card.problem.empty())
      text += formatted("  {} {}; nothing new starts there\n", printable(devices::short_name(card.name)),
                        printable(card.problem));
  if (store.draining()) text += "  draining: nothing new starts, and the worker ends with what runs\n";
  if (store.paused()) text += "  paused: nothing new starts until plimsoll queue resume\n";
  return text;
}

ExitCode run_list(const ShowArguments& arguments) {
  Store store(queue::queue_folder());
  const std::vector<Entry> entries = shown_entries(store, arguments);
  if (!arguments.json) {
    print(list_text(entries, store));
    if (const std::string note = worker_note(store); !note.empty())
      print(formatted("  {}\n", note.substr(2)));
    return ExitCode::ok;
  }
  nlohmann::ordered_json root = {{"paused", store.paused()},
                                 {"draining", store.draining()},
                                 {"worker", queue::has_worker(store.folder())}};
  root["devices"] = nlohmann::ordered_json::array();
  for (const queue::MachineCard& card : cards_of_worker(store))
    root["devices"].push_back(
        {{"name", card.name}, {"capacity_bytes", card.bytes}, {"problem", card.problem}});
  root["entries"] = nlohmann::ordered_json::array();
  std::map<int64_t, std::vector<Attempt>> attempts;
  for (Attempt& one : store.attempts()) attempts[one.entry].push_back(std::move(one));
  for (const Entry& one : entries) root["entries"].push_back(entry_json(store, one, attempts[one.id]));
  print(json_text(root));
  return ExitCode::ok;
}

std::string attempt_text(const Store& store, const Entry& entry, const Attempt& one) {
  std::string text;
  text += formatted("  attempt {}  {}{}, reserved {}", one.number, date(one.started),
                    one.ended ? " to " + date(*one.ended) : ", " + std::string(name_of(entry.state)),
                    reserved(one.need));
  if (!one.cards.empty()) text += " on " + printable(join(one.cards, ", "));
  if (!one.job.empty()) text += ", Slurm job " + printable(one.job);
  if (one.peak_bytes > 0) text += ", peak " + format_bytes(one.peak_bytes);
  if (one.card_peak_bytes > 0) text += ", on a card " + format_bytes(one.card_peak_bytes);
  if (!one.words.empty() && one.words != entry.words) text += "\n    ran " + printable(join(one.words, " "));
  if (!one.words.empty() && one.environment != entry.environment)
    text += "\n    with " + printable(join(one.environment, " "));
  text += memory_text(store, one);
  if (!one.outcome.empty()) text += "\n    " + printable(one.outcome);
  text += formatted("\n    log {}\n", printable((store.folder_of(one.entry, one.number) / "log").string()));
  return text;
}

std::string show_text(Store& store, const Entry& entry) {
  TextTable facts;
  facts.add_row(
      {"state", std::string(name_of(entry.state)) + (entry.stop_requested ? ", asked to end" : "")});
  if (!entry.note.empty()) facts.add_row({"note", printable(entry.note)});
  if (!entry.group.empty()) facts.add_row({"group", printable(entry.group)});
  facts.add_row({entry.recipe ? "recipe" : "command", printable(join(entry.words, " "))});
  for (const std::string& one : entry.environment) facts.add_row({"environment", printable(one)});
  for (const std::string& one : config_changes_in(store, entry.words, entry.environment))
    facts.add_row({"changed", printable(one)});
  facts.add_row({"folder", printable(entry.folder)});
  if (!entry.output.empty()) facts.add_row({"output", printable(entry.output)});
  const bool smaller = entry.need.card.empty() &&
                       std::any_of(entry.smaller.begin(), entry.smaller.end(), [&](const auto& plan) {
                         return with_plan(entry.need, plan) == entry.need && plan.seconds == entry.seconds;
                       });
  facts.add_row({"needs", formatted("{}, threads {}{}", with_card(reserved(entry.need), entry.need.card),
                                    entry.need.threads, smaller ? ", by a smaller plan" : "")});
  const std::vector<Attempt> attempts = store.attempts(entry.id);
  for (const queue::MachineCard& card : cards_of_worker(store)) {
    const bool runs_there =
        entry.state == State::running && !attempts.empty() &&
        std::count(attempts.back().cards.begin(), attempts.back().cards.end(), card.name) > 0;
    if (runs_there && !card.problem.empty())
      facts.add_row({"device", formatted("{} {}", printable(card.name), printable(card.problem))});
  }
  if (entry.seconds > 0) facts.add_row({"predicted", format_seconds(entry.seconds)});
  if (const auto progress = progress_of(entry); progress && (progress->loss || progress->eval_loss))
    facts.add_row({"loss", top::loss_words(progress->loss) +
                               (progress->eval_loss ? formatted(", evaluation {}, at best {}",
                                                                top::loss_words(progress->eval_loss),
                                                                top::loss_words(progress->best_loss))
                                                    : "")});
  facts.add_row({"priority", std::to_string(entry.priority)});
  facts.add_row({"retries", std::to_string(entry.retries) + " left"});
  for (const queue::CommandVariant& one : entry.variants) facts.add_row({"on oom", printable(one.text)});
  for (const queue::SmallerPlan& one : entry.smaller)
    if (entry.attempts == 0)
      facts.add_row(
          {"or with", formatted("{}{}, {}", with_card(reserved(with_plan(entry.need, one)), one.card),
                                one.threads > 0 ? ", threads " + std::to_string(one.threads) : "",
                                format_seconds(one.seconds))});
  for (const int64_t other : entry.after) facts.add_row({"after", std::to_string(other)});
  facts.add_row({"added", date(entry.submitted)});
  // The date is a prediction: runs before it may take longer than was predicted.
  if (entry.promised && entry.state == State::waiting)
    facts.add_row({"starts by", *entry.promised < queue::clock_now()
                                    ? formatted("later than predicted ({})", date(*entry.promised))
                                    : date(*entry.promised)});
  std::string text =
      formatted("{} {}\n{}", entry.id, printable(entry.name), facts.render("  ", output_columns()));
  for (const Attempt& one : attempts) text += fitted(attempt_text(store, entry, one), output_columns());
  return text;
}

ExitCode run_show(const ShowArguments& arguments) {
  Store store(queue::queue_folder());
  const Entry entry = store.entry(arguments.id);
  if (!arguments.json) {
    print(show_text(store, entry));
    return ExitCode::ok;
  }
  const std::vector<Attempt> attempts = store.attempts(entry.id);
  nlohmann::ordered_json root = entry_json(store, entry, attempts);
  for (size_t i = 0; i < attempts.size(); ++i)
    root["attempts"][i]["memory"] = memory_json(store, attempts[i]);
  print(json_text(root));
  return ExitCode::ok;
}

// This attempt is over, and nothing more will be written.
bool log_is_whole(Store& store, int64_t id, int number) {
  const Entry entry = store.entry(id);
  return !is_begun(entry.state) || entry.attempts != number;
}

ExitCode run_logs(const ShowArguments& arguments) {
  Store store(queue::queue_folder());
  const Entry entry = store.entry(arguments.id);
  const int number = arguments.attempt > 0 ? arguments.attempt : entry.attempts;
  if (number < 1 || number > entry.attempts)
    throw UsageError(formatted("entry {}{}", arguments.id,
                               entry.attempts == 0 ? " has not started yet" : " has no such attempt"));
  std::ifstream log;
  std::string part(1 << 16, '\0');
  for (;;) {
    const bool whole = !arguments.follow || log_is_whole(store, arguments.id, number);
    // The supervisor makes it, a moment after the entry's state becomes running.
    if (!log.is_open()) log.open(store.folder_of(arguments.id, number) / "log", std::ios::binary);
    while (log.read(part.data(), static_cast<std::streamsize>(part.size())) || log.gcount() > 0)
      print(std::string_view(part).substr(0, static_cast<size_t>(log.gcount())));
    if (whole) return ExitCode::ok;
    flush_output();
    log.clear();
    store.require_in_place();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
}

}  // namespace

std::string own_program() {
  std::error_code none;
  return fs::read_symlink("/proc/self/exe", none).string();
}

std::string worker_note(const Store& store) {
  return queue::has_worker(store.folder()) ? "" : "; no worker runs: plimsoll queue run starts what waits";
}

nlohmann::ordered_json entry_json(Store& store, const Entry& entry) {
  return entry_json(store, entry, entry.attempts > 0 ? store.attempts(entry.id) : std::vector<Attempt>{});
}

nlohmann::ordered_json entry_json(const Store& store, const Entry& entry,
                                  const std::vector<Attempt>& attempts) {
  nlohmann::ordered_json root = {{"id", entry.id},
                                 {"name", entry.name},
                                 {"group", entry.group},
                                 {"state", name_of(entry.state)},
                                 {"note", entry.note},
                                 {"held_by", entry.held_by},
                                 {"recipe", entry.recipe},
                                 {"words", entry.words},
                                 {"environment", entry.environment},
                                 {"changes", config_changes_in(store, entry.words, entry.environment)},
                                 {"folder", entry.folder},
                                 {"output", entry.output},
                                 {"devices", entry.need.devices},
                                 {"device_bytes", entry.need.device_bytes},
                                 {"card", entry.need.card},
                                 {"host_bytes", entry.need.host_bytes},
                                 {"threads", entry.need.threads},
                                 {"processes", entry.need.processes},
                                 {"predicted_seconds", entry.seconds},
                                 {"priority", entry.priority},
                                 {"retries", entry.retries},
                                 {"after", entry.after},
                                 {"on_oom", nlohmann::ordered_json::array()},
                                 {"smaller_plans", nlohmann::ordered_json::array()},
                                 {"loss", nullptr},
                                 {"eval_loss", nullptr},
                                 {"best_eval_loss", nullptr},
                                 {"submitted", entry.submitted},
                                 {"attempts", nlohmann::ordered_json::array()}};
  if (const auto progress = progress_of(entry)) {
    const auto set = [&](const char* key, const std::optional<double>& loss) {
      if (loss) root[key] = *loss;
    };
    set("loss", progress->loss);
    set("eval_loss", progress->eval_loss);
    set("best_eval_loss", progress->best_loss);
  }
  for (const queue::CommandVariant& one : entry.variants) root["on_oom"].push_back(one.text);
  for (const queue::SmallerPlan& one : entry.smaller) {
    nlohmann::ordered_json plan = {{"host_bytes", one.host_bytes},
                                   {"threads", with_plan(entry.need, one).threads},
                                   {"predicted_seconds", one.seconds}};
    if (!one.card.empty()) plan["card"] = one.card;
    if (one.device_bytes > 0) plan["device_bytes"] = one.device_bytes;
    if (one.processes > 0) plan["processes"] = one.processes;
    root["smaller_plans"].push_back(std::move(plan));
  }
  for (const Attempt& one : attempts) root["attempts"].push_back(attempt_json(store, one));
  return root;
}

void add_queue_list(CLI::App& group, Action& action) {
  auto arguments = std::make_shared<ShowArguments>();
  CLI::App* command = group.add_subcommand("list", "waiting, running and recently finished jobs");
  command->add_flag("--all", arguments->all, "all jobs that were ever added");
  command->add_option("--group", arguments->group, "jobs of a group, finished ones too")->type_name("NAME");
  command->add_flag("--json", arguments->json, "JSON output (docs/reference/json.md)");
  command->callback([arguments, &action] { action = [arguments] { return run_list(*arguments); }; });
}

void add_queue_show(CLI::App& group, Action& action) {
  auto arguments = std::make_shared<ShowArguments>();
  CLI::App* command = group.add_subcommand("show", "details of one job, with its attempts");
  command->add_option("id", arguments->id, "id of the job")->required();
  command->add_flag("--json", arguments->json, "JSON output (docs/reference/json.md)");
  command->callback([arguments, &action] { action = [arguments] { return run_show(*arguments); }; });
}

void add_queue_logs(CLI::App& group, Action& action) {
  auto arguments = std::make_shared<ShowArguments>();
  CLI::App* command = group.add_subcommand("logs", "the log of a job");
  command->add_option("id", arguments->id, "id of the job")->required();
  command->add_option("--attempt", arguments->attempt, "number of the attempt, from 1; by default the last");
  command->add_flag("-f,--follow", arguments->follow, "follow the log until the attempt ends");
  command->callback([arguments, &action] { action = [arguments] { return run_logs(*arguments); }; });
}

}  // namespace plimsoll
