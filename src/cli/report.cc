#include "report/report.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/print.h"
#include "base/screen.h"
#include "cli/commands.h"
#include "fleet/batch/batch.h"
#include "io/atomic.h"

namespace plimsoll {

namespace {

struct ReportArguments {
  std::vector<std::string> runs;
  std::string html;
  bool queue = false, all = false, json = false;
};

ExitCode report_several(const ReportArguments& arguments) {
  if (!arguments.html.empty())
    throw UsageError("--html is the page of one run; of several: plimsoll report RUN RUN, or with --json");
  std::vector<RunHistory> runs;
  for (const std::string& run : arguments.runs) runs.push_back(read_history(run));
  print(arguments.json ? json_text(compare_json(std::move(runs)))
                       : compare_text(std::move(runs), output_columns()));
  return ExitCode::ok;
}

ExitCode report_run(const ReportArguments& arguments) {
  if (arguments.runs.empty()) throw UsageError("RUN is missing: the run's folder; or --queue");
  if (arguments.all) throw UsageError("--all goes with --queue");
  if (arguments.runs.size() > 1) return report_several(arguments);
  const RunHistory run = read_history(arguments.runs.front());
  if (!arguments.html.empty()) write_file_atomically(arguments.html, run_page(run));
  print(arguments.json ? json_text(run_json(run)) : run_text(run, output_columns()));
  if (!arguments.html.empty() && !arguments.json) print("\n  page       " + printable(arguments.html) + "\n");
  return ExitCode::ok;
}

ExitCode report_queue(const ReportArguments& arguments) {
  if (!arguments.runs.empty()) throw UsageError("--queue is of all runs together: without RUN");
  constexpr double kPause = 3600;
  const size_t width = std::min<size_t>(output_columns(), 120);
  queue::Store store(queue::queue_folder());
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const batch::Batch found =
      batch::take(store, now, arguments.all ? std::numeric_limits<double>::infinity() : kPause);
  if (!arguments.html.empty()) write_file_atomically(arguments.html, batch::batch_page(found));
  print(arguments.json ? json_text(batch::batch_json(found)) : batch::batch_text(found, width));
  if (!arguments.html.empty() && !arguments.json) print("\n  page  " + printable(arguments.html) + "\n");
  return ExitCode::ok;
}

}  // namespace

void add_report(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<ReportArguments>();
  CLI::App* command =
      app.add_subcommand("report", "what became of a run, or of the queue, also while it goes on");
  command->add_option(
      "run", arguments->runs,
      "the run's folder (output of its recipe); of several they are compared, the best first");
  command->add_option("--html", arguments->html, "write a page with its curves")->type_name("FILE");
  command->add_flag("--queue", arguments->queue, "of the queue's last batch: who was where and when");
  command->add_flag("--all", arguments->all, "with --queue: all that ever ran");
  command->add_flag("--json", arguments->json, "for machines: docs/json.md");
  command->callback([arguments, &action] {
    action = [arguments] { return arguments->queue ? report_queue(*arguments) : report_run(*arguments); };
  });
}

}  // namespace plimsoll
