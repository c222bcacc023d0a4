// plimsoll doctor: why a log's run ended, and what to do next.
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/print.h"
#include "base/regular_file.h"
#include "cli/commands.h"
#include "fleet/doctor/diagnosis.h"

namespace plimsoll {
namespace {

struct DoctorArguments {
  std::string log;
  bool json = false;
};

void read_log(int descriptor, const std::string& name, doctor::LogScanner& scanner) {
  std::vector<char> buffer(size_t{1} << 20);
  for (;;) {
    const ssize_t got = read(descriptor, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw StoppedError(name + ": " + system_message(errno));
    if (got == 0) break;
    scanner.feed({buffer.data(), static_cast<size_t>(got)});
  }
  scanner.finish();
}

doctor::Evidence evidence_of(const DoctorArguments& arguments) {
  doctor::LogScanner scanner;
  if (arguments.log == "-") {
    read_log(STDIN_FILENO, "standard input", scanner);
  } else {
    const int descriptor = open_regular(arguments.log);
    read_log(descriptor, arguments.log, scanner);
    close(descriptor);
  }
  doctor::Evidence evidence;
  add_evidence(scanner, "", evidence);
  return evidence;
}

ExitCode run(const DoctorArguments& arguments) {
  const doctor::Evidence evidence = evidence_of(arguments);
  const doctor::Diagnosis diagnosis = doctor::diagnose(evidence);
  print(arguments.json ? doctor::diagnosis_json(diagnosis, evidence)
                       : doctor::diagnosis_text(diagnosis, evidence));
  return ExitCode::ok;
}

}  // namespace

void add_doctor(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<DoctorArguments>();
  CLI::App* command = app.add_subcommand("doctor", "why a run ran out of memory, from any program's log");
  command->add_option("log", arguments->log, "a log; - reads standard input")->required();
  command->add_flag("--json", arguments->json, "for machines: docs/json.md");
  command->callback([arguments, &action] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace plimsoll
