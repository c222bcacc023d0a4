#include "fleet/queue/planned.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/units.h"

namespace plimsoll::queue {
namespace {

struct Answer {
  int code = -1;
  std::string output;
};

Answer ask(const std::string& program, const std::vector<std::string>& words) {
  std::vector<char*> arguments = {const_cast<char*>(program.c_str()), const_cast<char*>("plan")};
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  int answers[2];
  if (pipe2(answers, O_CLOEXEC) != 0) throw StoppedError("no pipe to the planner");
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(answers[1], STDOUT_FILENO);
    execv(program.c_str(), arguments.data());
    _exit(127);
  }
  close(answers[1]);
  Answer answer;
  char part[65536];
  for (ssize_t got = 0;
       pid > 0 && ((got = read(answers[0], part, sizeof part)) > 0 || (got < 0 && errno == EINTR));)
    if (got > 0) answer.output.append(part, static_cast<size_t>(got));
  close(answers[0]);
  int status = 0;
  if (pid < 0 || waitpid(pid, &status, 0) != pid) throw StoppedError("the planner was not started");
  if (WIFEXITED(status)) answer.code = WEXITSTATUS(status);
  return answer;
}

}  // namespace

Planned read_plan(const std::string& text, const std::string& recipe) {
  const nlohmann::json plan = nlohmann::json::parse(text, nullptr, false);
  check_internal(plan.is_object() && plan.contains("process"), "plan --json gave no plan");
  if (!plan.at("feasible").get<bool>())
    throw DoesNotFitError("does not fit   " + recipe + " needs " +
                          format_bytes_up(plan.at("smallest").at("memory_bytes").get<int64_t>()) +
                          " at least; plimsoll plan " + recipe + " shows the ways");
  if (plan.at("device").at("kind") != "cpu")
    throw UsageError(recipe + ": the queue trains on the CPU; device: card is for plans");
  Planned planned;
  planned.need.host_bytes = plan.at("process").at("planned_peak_rss_bytes").get<int64_t>();
  planned.need.threads = plan.at("variant").at("threads").get<int>();
  if (plan.at("run").is_object()) planned.seconds = plan.at("run").at("seconds").get<double>();
  return planned;
}

Planned plan_recipe(const std::string& program, const std::vector<std::string>& words) {
  const Answer answer = ask(program, words);
  if (answer.code != 0 && answer.code != static_cast<int>(ExitCode::does_not_fit)) {
    const bool known = answer.code > 0 && answer.code <= static_cast<int>(ExitCode::stopped);
    throw Error(known ? static_cast<ExitCode>(answer.code) : ExitCode::internal,
                words.front() + ": has no plan, so it is not added");
  }
  return read_plan(answer.output, words.front());
}

}  // namespace plimsoll::queue
