#include "report/report.h"

#include <cstdio>

#include "base/print.h"
#include "cli/commands.h"
#include "io/atomic.h"

namespace plimsoll {

void add_report(CLI::App& app, Action& action) {
  struct Arguments {
    std::string run, html;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("report", "what became of a run, also while it goes on");
  command->add_option("run", arguments->run, "the run's folder (output of its recipe)")->required();
  command->add_option("--html", arguments->html, "write a page with its curves")->type_name("FILE");
  command->callback([arguments, &action] {
    action = [arguments] {
      const RunHistory run = read_history(arguments->run);
      if (!arguments->html.empty()) write_file_atomically(arguments->html, run_page(run));
      print(run_text(run));
      if (!arguments->html.empty()) print("\n  page       " + printable(arguments->html) + "\n");
      return ExitCode::ok;
    };
  });
}

}  // namespace plimsoll
