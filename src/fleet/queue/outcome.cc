#include "fleet/queue/outcome.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/format.h"
#include "base/units.h"
#include "fleet/doctor/diagnosis.h"
#include "fleet/queue/packing/ladder.h"

namespace plimsoll::queue {
namespace {

// For the host of a run on cards too.
std::optional<Need> more_host(const Machine& machine, const Need& need, int64_t used) {
  Need host = need;
  host.devices = 0;
  const auto next = need_after_memory_ran_out(machine, host, used);
  if (!next) return std::nullopt;
  host = need;
  host.host_bytes = next->host_bytes;
  return host;
}

std::string described(const Exit& exit) {
  if (exit.signal == 0) return "exit code " + std::to_string(exit.code);
  const char* name = sigabbrev_np(exit.signal);
  return name == nullptr ? "ended by signal " + std::to_string(exit.signal)
                         : std::string("ended by SIG") + name;
}

void fail(Entry& entry, const Attempt& attempt) {
  entry.state = State::failed;
  entry.note = attempt.outcome;
}

// It waits for its next attempt, unless it was asked by now to end or to be held.
void wait_again(Entry& entry, const Attempt& attempt) {
  entry.state = state_as_requested(entry, State::waiting);
  entry.promised.reset();
  entry.note = entry.state == State::canceled ? "" : "again after: " + attempt.outcome;
}

void again(Entry& entry, const Attempt& attempt, bool takes_a_retry) {
  if (state_as_requested(entry, State::waiting) == State::canceled) return wait_again(entry, attempt);
  if ((takes_a_retry && entry.retries == 0) || entry.attempts >= kMostAttempts) return fail(entry, attempt);
  if (takes_a_retry) --entry.retries;
  wait_again(entry, attempt);
}

// Others took the room between the worker's look and the run's: that is no failure of the run, however often
// it happens.
void wait_until_it_fits(Entry& entry, Attempt& attempt, const LogVerdict& verdict) {
  attempt.outcome = "others had taken its room: " + verdict.does_not_fit_now;
  wait_again(entry, attempt);
}

// Takes the user's next smaller variant; the room is what it has come to.
void become_smaller(Entry& entry, Attempt& attempt) {
  const CommandVariant next = entry.variants.front();
  entry.variants.erase(entry.variants.begin());
  entry.words = next.command.words;
  entry.environment = next.command.environment;
  entry.fingerprint = next.fingerprint;
  attempt.outcome += "; next attempt: --on-oom " + next.text;
  again(entry, attempt, false);
}

void again_with_more(Entry& entry, Attempt& attempt, const Exit& exit, const LogVerdict& verdict,
                     const Machine& machine) {
  const bool of_host = entry.need.devices == 0 || exit.over_limit || exit.kernel_killed;
  const int64_t used = of_host ? exit.peak_bytes : verdict.of_others ? 1 : 0;
  const auto next =
      of_host ? more_host(machine, entry.need, used) : need_after_memory_ran_out(machine, entry.need, used);
  if ((!next || entry.retries == 0) && !entry.variants.empty()) return become_smaller(entry, attempt);
  if (!next) {
    attempt.outcome += "; there is no more to reserve";
    return fail(entry, attempt);
  }
  entry.need = *next;
  again(entry, attempt, true);
}

std::string memory_failure(const Entry& entry, const Exit& exit, const LogVerdict& verdict) {
  if (exit.over_limit)
    return formatted("took more than its reservation of {} on the host", format_bytes(entry.need.host_bytes));
  if (exit.kernel_killed) return "the kernel ended it: the host was out of memory";
  // A command that is a training of ours: what it was given may not be enough, so its ladder moves.
  if (exit.code == static_cast<int>(ExitCode::does_not_fit) && !verdict.does_not_fit_now.empty())
    return "it was refused at its start: " + verdict.does_not_fit_now;
  return verdict.out_of_memory ? verdict.headline : "";
}

bool worth_another_try(const Entry& entry, const Exit& exit) {
  if (entry.recipe && (exit.code == static_cast<int>(ExitCode::stopped) ||
                       exit.code == static_cast<int>(ExitCode::interrupted)))
    return true;
  // srun ends with 128 and the signal that ended one of several processes.
  const int signal = exit.signal == 0 && entry.recipe && exit.code > 128 ? exit.code - 128 : exit.signal;
  return signal == SIGKILL || signal == SIGTERM || signal == SIGHUP || signal == SIGINT;
}

}  // namespace

void settle_beside_others(Entry& entry, Attempt& last) {
  last.outcome += "; others leave it no more than it ran out with";
  if (!entry.variants.empty()) return become_smaller(entry, last);
  entry.promised.reset();
  fail(entry, last);
}

static void settle_by_outcome(Entry& entry, Attempt& attempt, const AttemptState& state,
                              const LogVerdict& verdict, const Machine& machine) {
  if (state.life == Life::supervisor_lost) {
    attempt.outcome = "its supervisor was lost: killed, or the machine went down";
    return again(entry, attempt, false);
  }
  const Exit& exit = *state.exit;
  attempt.peak_bytes = exit.peak_bytes;
  attempt.outcome = exit.problem.empty() ? described(exit) : "never started: " + exit.problem;
  if (exit.left_over > 0)
    attempt.outcome += formatted("; {} processes that it left were ended", exit.left_over);
  if (exit.record_removed) attempt.outcome = "its folder was removed while it ran: how it ended is not known";
  if (!exit.problem.empty() || exit.record_removed) return fail(entry, attempt);
  if (exit.code == 0 && !exit.over_limit) {
    entry.state = State::done;
    attempt.done = true;
    entry.note.clear();
    return;
  }
  if (entry.stop_requested && exit.canceled) {
    entry.state = state_as_requested(entry, State::canceled);
    entry.note = entry.hold_requested
                     ? "stopped; continue it with plimsoll queue resume " + std::to_string(entry.id)
                     : "";
    return;
  }
  if (entry.recipe && exit.code == static_cast<int>(ExitCode::does_not_fit) &&
      !verdict.does_not_fit_now.empty())
    return wait_until_it_fits(entry, attempt, verdict);
  if (const std::string why = memory_failure(entry, exit, verdict); !why.empty()) {
    attempt.outcome = why;
    return again_with_more(entry, attempt, exit, verdict, machine);
  }
  if (exit.timed_out) {
    attempt.outcome =
        formatted("the time that it was given, {}, was too short", format_seconds(exit.seconds));
    entry.seconds = 2 * std::max(entry.seconds, exit.seconds);
    return again(entry, attempt, true);
  }
  if (!verdict.failure.empty()) attempt.outcome += ": " + verdict.failure;
  if (worth_another_try(entry, exit)) return again(entry, attempt, true);
  fail(entry, attempt);
}

void settle(Entry& entry, Attempt& attempt, const AttemptState& state, const LogVerdict& verdict,
            const Machine& machine) {
  settle_by_outcome(entry, attempt, state, verdict, machine);
  entry.stop_requested = entry.hold_requested = false;  // no request is there for the next attempt
  if (!verdict.unread.empty()) attempt.outcome += "; " + verdict.unread;
}

namespace {

// Finds the message of a training that was refused at its start although its plan fits: what is free does not do
// (prepare/fitting_plan.cc), no plan fits into what others leave of the card (prepare/memory_budget.cc), or the
// driver gives no more.
std::string does_not_fit_now(std::string_view end_of_log) {
  for (const char* mark : {" are free on the card", " are free on this machine", " are free for an arena now",
                           "the driver gives no ", "the driver refused "}) {
    const size_t at = end_of_log.rfind(mark);
    if (at == std::string_view::npos) continue;
    const size_t begin = end_of_log.rfind('\n', at) + 1;  // of npos: 0
    std::string_view line = end_of_log.substr(begin, end_of_log.find('\n', at) - begin);
    constexpr std::string_view kRefusal = "does not fit   ";
    if (const size_t behind = line.find(kRefusal); behind != std::string_view::npos)
      line.remove_prefix(behind + kRefusal.size());
    return std::string(line);
  }
  return "";
}

}  // namespace

LogVerdict diagnose_log(const std::filesystem::path& log) {
  constexpr std::streamoff kPart = 32 << 20;
  std::ifstream file(log, std::ios::binary | std::ios::ate);
  if (!file) return {};
  const std::streamoff size = file.tellg();
  doctor::LogScanner scanner;
  std::string part(1 << 16, '\0'), end;
  file.seekg(0);
  while (file) {
    file.read(part.data(), static_cast<std::streamsize>(part.size()));
    const std::string_view read = std::string_view(part).substr(0, static_cast<size_t>(file.gcount()));
    scanner.feed(read);
    end = end.substr(end.size() - std::min<size_t>(end.size(), 4096)) + std::string(read);
    if (file && size > 2 * kPart && file.tellg() >= kPart && file.tellg() < size - kPart)
      file.seekg(size - kPart);
  }
  scanner.finish();
  doctor::Evidence evidence;
  doctor::add_evidence(scanner, "", evidence);
  const doctor::Diagnosis diagnosis = doctor::diagnose(evidence);
  return {diagnosis.out_of_memory == doctor::Verdict::yes,
          diagnosis.cause == doctor::Cause::other_processes,
          diagnosis.headline,
          diagnosis.cause == doctor::Cause::other_failure ? diagnosis.reason : "",
          does_not_fit_now(end),
          size > 2 * kPart ? formatted("of its log of {} the first and the last {} were read",
                                       format_bytes(size), format_bytes(kPart))
                           : ""};
}

}  // namespace plimsoll::queue
