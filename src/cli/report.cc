#include "report/report.h"

#include <chrono>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/print.h"
#include "cli/commands.h"
#include "fleet/batch/batch.h"
#include "io/atomic.h"

namespace plimsoll {

namespace {

struct ReportArguments {
  std::string run, html;
  bool queue = false, all = false, json = false;
};

ExitCode report_run(const ReportArguments& arguments) {
  if (arguments.run.empty()) throw UsageError("RUN is missing: the run's folder; or --queue");
  if (arguments.all || arguments.json) throw UsageError("--all and --json go with --queue");
  const RunHistory run = read_history(arguments.run);
  if (!arguments.html.empty()) write_file_atomically(arguments.html, run_page(run));
  print(run_text(run));
  if (!arguments.html.empty()) print("\n  page       " + printable(arguments.html) + "\n");
  return ExitCode::ok;
}

ExitCode report_queue(const ReportArguments& arguments) {
  if (!arguments.run.empty()) throw UsageError("--queue is of all runs together: without RUN");
  constexpr double kPause = 3600;
  constexpr size_t kWidth = 120;
  queue::Store store(queue::queue_folder());
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const batch::Batch found =
      batch::take(store, now, arguments.all ? std::numeric_limits<double>::infinity() : kPause);
  if (!arguments.html.empty()) write_file_atomically(arguments.html, batch::batch_page(found));
  print(arguments.json ? json_text(batch::batch_json(found)) : batch::batch_text(found, kWidth));
  if (!arguments.html.empty() && !arguments.json) print("\n  page  " + printable(arguments.html) + "\n");
  return ExitCode::ok;
}

}  // namespace

void add_report(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<ReportArguments>();
  CLI::App* command =
      app.add_subcommand("report", "what became of a run, or of the queue, also while it goes on");
  command->add_option("run", arguments->run, "the run's folder (output of its recipe)");
  command->add_option("--html", arguments->html, "write a page with its curves")->type_name("FILE");
  command->add_flag("--queue", arguments->queue, "of the queue's last batch: who was where and when");
  command->add_flag("--all", arguments->all, "with --queue: all that ever ran");
  command->add_flag("--json", arguments->json, "with --queue: for machines, docs/json.md");
  command->callback([arguments, &action] {
    action = [arguments] { return arguments->queue ? report_queue(*arguments) : report_run(*arguments); };
  });
}

}  // namespace plimsoll
