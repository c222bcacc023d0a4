#include "report/report.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/print.h"
#include "base/screen.h"
#include "base/shell_word.h"
#include "cli/commands.h"
#include "files/atomic.h"
#include "fleet/batch/batch.h"

namespace plimsoll {

namespace {

struct ReportArguments {
  std::vector<std::string> runs;
  std::string html, group, by;
  bool queue = false, all = false, json = false;
};

void write_page(const ReportArguments& arguments, const std::string& page) {
  if (arguments.html.empty()) return;
  write_file_atomically(arguments.html, page);
  if (!arguments.json) print(formatted("\n  page       {}\n", printable(arguments.html)));
}

ExitCode report_several(const ReportArguments& arguments, const std::vector<RunHistory>& runs,
                        const std::string& note) {
  if (arguments.json)
    print(json_text(compare_json(runs, arguments.by)));
  else
    print(compare_text(runs, output_columns(), arguments.by) + note);
  write_page(arguments, arguments.html.empty() ? "" : compare_page(runs, arguments.by));
  return ExitCode::ok;
}

// Reports a group of the queue: the trainings that have begun.
ExitCode report_group(const ReportArguments& arguments) {
  if (!arguments.runs.empty()) throw UsageError("--group replaces RUN: give one of them");
  queue::Store store(queue::queue_folder());
  std::vector<RunHistory> runs;
  std::string others;
  for (const queue::Entry& entry : store.entries_of(arguments.group)) {
    std::error_code none;
    if (!entry.output.empty() &&
        std::filesystem::exists(std::filesystem::path(entry.output) / "recipe.yaml", none))
      runs.push_back(read_history(entry.output));
    else
      others += formatted("\n  {} {}: {}", entry.id, printable(entry.name),
                          entry.recipe
                              ? "has not begun, " + std::string(name_of(entry.state))
                              : "a command, whose losses are unknown; " + std::string(name_of(entry.state)));
  }
  if (runs.empty())
    throw UsageError(
        formatted("no training of the group {} has begun:{}\n  plimsoll report --queue --group {} shows "
                  "time and memory",
                  printable(arguments.group), others, quoted(arguments.group)));
  return report_several(arguments, runs, others.empty() ? "" : others + "\n");
}

ExitCode report_run(const ReportArguments& arguments) {
  if (arguments.all) throw UsageError("--all goes with --queue");
  if (!arguments.group.empty()) return report_group(arguments);
  if (arguments.runs.empty()) throw UsageError("RUN is missing: the run's folder; or --group, or --queue");
  if (arguments.runs.size() > 1) {
    std::vector<RunHistory> runs;
    for (const std::string& run : arguments.runs) runs.push_back(read_history(run));
    return report_several(arguments, runs, "");
  }
  if (!arguments.by.empty()) throw UsageError("--by sorts several runs: report RUN RUN, or --group NAME");
  const RunHistory run = read_history(arguments.runs.front());
  print(arguments.json ? json_text(run_json(run)) : run_text(run, output_columns()));
  write_page(arguments, arguments.html.empty() ? "" : run_page(run));
  return ExitCode::ok;
}

ExitCode report_queue(const ReportArguments& arguments) {
  if (!arguments.runs.empty()) throw UsageError("--queue is of all runs together: without RUN");
  if (!arguments.by.empty()) throw UsageError("--by sorts several runs: report RUN RUN, or --group NAME");
  constexpr double kPause = 3600;
  const size_t width = std::min<size_t>(output_columns(), 120);
  queue::Store store(queue::queue_folder());
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const batch::Batch found = batch::take(
      store, now,
      arguments.all || !arguments.group.empty() ? std::numeric_limits<double>::infinity() : kPause,
      arguments.group);
  print(arguments.json ? json_text(batch::batch_json(found)) : batch::batch_text(found, width));
  write_page(arguments, arguments.html.empty() ? "" : batch::batch_page(found));
  return ExitCode::ok;
}

}  // namespace

void add_report(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<ReportArguments>();
  CLI::App* command = app.add_subcommand("report", "results of a run or of the queue, also while it runs");
  command->add_option("run", arguments->runs,
                      "run folder (output of its recipe); several are compared, the best first");
  command
      ->add_option("--html", arguments->html, "write an HTML page: curves of one run, or a table of several")
      ->type_name("FILE");
  command->add_flag("--queue", arguments->queue, "the queue's last batch: runs by device and time");
  command
      ->add_option("--group", arguments->group,
                   "compare the runs of a group of the queue; with --queue: runs by device and time")
      ->type_name("NAME");
  command->add_option("--by", arguments->by, "sort several runs by loss, or by a metric such as accuracy")
      ->type_name("METRIC");
  command->add_flag("--all", arguments->all, "with --queue: all runs, not only the last batch");
  command->add_flag("--json", arguments->json, "JSON output (docs/reference/json.md)");
  command->callback([arguments, &action] {
    action = [arguments] { return arguments->queue ? report_queue(*arguments) : report_run(*arguments); };
  });
}

}  // namespace plimsoll
