#include "fleet/doctor/diagnosis.h"

#include <algorithm>
#include <array>

#include "base/format.h"
#include "base/units.h"

namespace plimsoll::doctor {
namespace {

// Messages of one failure stand this near to each other: ranks fail one after the other.
constexpr int64_t kCluster = 2000;  // lines

constexpr int64_t kVictimReach = 12;  // lines from the first line of the kernel's pair to the second

bool is_memory(Sign sign) { return sign < Sign::killed; }
// Grades messages of another failure: 2 names the error itself, 1 a library's call that failed, 0 that something did.
int specifics(const Message& message) {
  constexpr std::array<std::string_view, 6> kOfLibraries = {
      "nccl.invalid_usage", "nccl.internal", "nccl.any", "gloo.any", "cuda.any", "crash.assertion"};
  const std::string_view name = message.row->name;
  if (name.starts_with("python.") || name.starts_with("child.")) return 0;
  return std::ranges::find(kOfLibraries, name) != kOfLibraries.end() ? 1 : 2;
}
bool is_generic(const Message& message) { return specifics(message) < 2; }
// A program that reports another one which failed.
bool is_of_child(const Message& message) { return message.row->name.starts_with("child."); }
// Words of an unknown program: they say that memory ran out, and at times where.
bool is_general(const Message& message) { return message.row->name == "any.out_of_memory"; }
// The one who ended a process for want of memory.
Cause cause_of_end(const Message& message) {
  if (!message.word("by_group").empty()) return Cause::host_cgroup;
  if (!message.word("by_job").empty()) return Cause::host_scheduler;
  if (!message.word("by_daemon").empty()) return Cause::host_daemon;
  return message.word("by_limit").empty() ? Cause::host_machine : Cause::software_cap;
}
// The cause that these words name; none: they say of which memory nothing.
Cause cause_by_words(const Message& message) {
  if (!message.word("ended_for").empty()) return cause_of_end(message);
  if (!message.word("in_shm").empty()) return Cause::shared_memory;
  if (!message.word("by_limit").empty())
    return !message.word("by_group").empty() ? Cause::host_cgroup
           : !message.word("by_job").empty() ? Cause::host_scheduler
                                             : Cause::software_cap;
  if (!message.word("on_pinned").empty()) return Cause::pinned_host;
  if (!message.word("on_host").empty()) return Cause::host_refused;
  if (!message.word("on_device").empty()) return Cause::device_unspecified;
  if (!message.word("in_cache").empty()) return Cause::cache_too_small;
  return message.word("in_process").empty() ? Cause::none : Cause::host_refused;
}
// An error that speaks of memory, of which nothing else is known.
bool is_vague(const Message& message) {
  return is_general(message) && cause_by_words(message) == Cause::none;
}

// The verdict of one row of each sign.
struct Meaning {
  Sign sign;
  Cause cause;
  Certainty certainty;
  const char* headline;
};
constexpr std::array kMeanings = {
    Meaning{Sign::device_full, Cause::capacity, Certainty::likely, "out of memory on "},
    Meaning{Sign::device_refused, Cause::device_unspecified, Certainty::possible, "out of memory on "},
    Meaning{Sign::software_cap, Cause::software_cap, Certainty::certain,
            "out of memory at a limit set by software"},
    Meaning{Sign::cache_too_small, Cause::cache_too_small, Certainty::certain,
            "no room for the server's cache"},
    Meaning{Sign::pinned_host, Cause::pinned_host, Certainty::likely, "out of pinned memory of the host"},
    Meaning{Sign::kernel_kill, Cause::host_machine, Certainty::certain, "out of memory on the host"},
    Meaning{Sign::cgroup_kill, Cause::host_cgroup, Certainty::certain,
            "out of memory in a control group of the host"},
    Meaning{Sign::scheduler_kill, Cause::host_scheduler, Certainty::certain,
            "out of the job's memory on the host"},
    Meaning{Sign::daemon_kill, Cause::host_daemon, Certainty::certain,
            "ended before the host ran out of memory"},
    Meaning{Sign::host_refused, Cause::host_refused, Certainty::likely, "out of memory on the host"},
    Meaning{Sign::shared_memory, Cause::shared_memory, Certainty::certain,
            "out of shared memory on the host"},
    Meaning{Sign::refused_by_plan, Cause::refused_by_plan, Certainty::certain,
            "refused before it began: it does not fit"},
    Meaning{Sign::killed, Cause::killed, Certainty::possible, "killed, and memory may be why"},
    Meaning{Sign::maybe_device, Cause::library_unclear, Certainty::possible,
            "a library failed, and memory may be why"},
};

const Meaning* meaning_of(Sign sign) {
  const auto found =
      std::find_if(kMeanings.begin(), kMeanings.end(), [&](const Meaning& m) { return m.sign == sign; });
  return found == kMeanings.end() ? nullptr : &*found;
}

// systemd's result "oom-kill" is that of a kill by the kernel and by a daemon alike; the daemon's message says more.
bool is_only_a_result(const Message& message, const Evidence& evidence) {
  return message.row->name == "systemd.oom_kill" &&
         std::ranges::any_of(evidence.messages,
                             [](const Message& other) { return other.row->sign == Sign::daemon_kill; });
}

// The message that shows most: by sign, then with more figures; of the last failure the first such message.
const Message* strongest(const Evidence& evidence) {
  const Message* best = nullptr;
  const auto weight = [](const Message& m) { return m.bytes.size() + m.holders.size(); };
  for (const Message& message : evidence.messages) {
    if (!is_memory(message.row->sign) || is_only_a_result(message, evidence)) continue;
    const bool better = best == nullptr || message.row->sign < best->row->sign ||
                        (message.row->sign == best->row->sign &&
                         (message.line > best->line + kCluster || weight(message) > 2 * weight(*best)));
    if (better) best = &message;
  }
  return best;
}

const Message* first_with(const Evidence& evidence, Sign sign) {
  for (const Message& message : evidence.messages)
    if (message.row->sign == sign) return &message;
  return nullptr;
}

// "needs 12 GiB, 80 GiB are free"; and what needs 2 of them, of which 1 is free, needs no bytes.
bool says_that_it_fits(const Message& message) {
  const Bytes* needed = message.size("needed");
  const Bytes* free = message.size("free");
  constexpr int64_t kCounted = 1000;
  return is_general(message) && needed != nullptr && free != nullptr &&
         (free->value >= needed->value || needed->value < kCounted);
}

// A message that may be one of memory: one that says where before one of a library, and before a vague one.
const Message* first_unclear(const Evidence& evidence) {
  const auto rank = [](const Message& message) {
    return !is_general(message) ? 1 : is_vague(message) ? 2 : 0;
  };
  const Message* best = nullptr;
  for (const Message& message : evidence.messages)
    if (message.row->sign == Sign::maybe_device && !says_that_it_fits(message) &&
        (best == nullptr || rank(message) < rank(*best)))
      best = &message;
  return best;
}

// The failure of another kind that ended the run: the first specific one, else the last general one.
const Message* other_failure(const Evidence& evidence) {
  const Message* best = nullptr;
  for (const Message& message : evidence.messages) {
    if (message.row->sign != Sign::other_failure) continue;
    const bool of_child = is_of_child(message);
    const bool replaces =
        specifics(message) == 0 && (!of_child || (best != nullptr && best->line == message.line));
    if (best == nullptr || specifics(*best) < specifics(message) || (specifics(*best) == 0 && replaces))
      best = &message;
  }
  return best;
}

// A launcher ends the others when one was killed, and lists them first at times; those that wait for it report that first.
bool is_sent_to_others(const Message& message) {
  constexpr std::array<std::string_view, 10> kOthers = {
      "exit.sigterm", "exit.143",    "nccl.closed",  "nccl.remote",  "nccl.timeout",
      "nccl.aborted", "gloo.closed", "gloo.timeout", "store.closed", "nccl.stuck"};
  return is_of_child(message) || std::ranges::find(kOthers, message.row->name) != kOthers.end();
}

bool ends_the_job(const Message& message) {
  return message.row->name == "time.slurm" || message.row->name == "slurm.cancelled";
}

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// The device of a family whose messages do not name it: empty for GPUs.
std::string_view device_of_family(std::string_view name) {
  struct Family {
    std::string_view begins, device;
  };
  constexpr std::array<Family, 7> kFamilies = {{{"xla.hbm", "accelerator"},
                                                {"xla.tpu", "accelerator"},
                                                {"neuron.", "accelerator"},
                                                {"poplar.", "accelerator"},
                                                {"metalium.", "accelerator"},
                                                {"gaudi.", "HPU"},
                                                {"ascend.", "NPU"}}};
  const auto found =
      std::ranges::find_if(kFamilies, [&](const Family& family) { return name.starts_with(family.begins); });
  return found == kFamilies.end() ? std::string_view() : found->device;
}

std::string device_name(const Message& message) {
  const std::string backend = message.word(message.word("backend").empty() ? "on_device" : "backend");
  const std::string_view family = device_of_family(message.row->name);
  const std::string kind = !family.empty()                                           ? std::string(family)
                           : backend == "MPS"                                        ? "GPU (MPS)"
                           : is_one_of(backend, {"XPU", "NPU", "HPU", "TPU", "MLU"}) ? backend
                                                                                     : "GPU";
  const auto number = message.number("device");
  const bool vowel = is_one_of(kind, {"accelerator", "XPU", "NPU", "HPU", "MLU"});  // as it is spoken: an NPU
  return number ? formatted("{} {}", kind, *number) : (vowel ? "an " : "a ") + kind;
}

std::string process_text(const Message& message) {
  std::string text = message.word("process");
  if (const auto pid = message.number("pid"))
    text += (text.empty() ? "process " : " (process ") + std::to_string(*pid) + (text.empty() ? "" : ")");
  if (const Bytes* rss = message.size("anon_rss"))
    text += formatted("{}{} of its own", text.empty() ? "" : ", ", format_bytes(rss->value));
  return text;
}

std::string host_reason(const Message& message, const Diagnosis& diagnosis) {
  std::string text(message.row->words);
  const std::string victim = process_text(message);
  if (!victim.empty()) text += ": " + victim;
  const std::string group = message.word("group");
  if (!group.empty()) text += "; group " + group;
  const auto add_limit = [&](const Message& m) {
    const Bytes* limit = m.size("limit");
    const Bytes* used = m.size(m.size("usage") != nullptr ? "usage" : "used");
    const Bytes* total = m.size("total");
    if (limit != nullptr) text += "; limit " + format_bytes(limit->value);
    if (used != nullptr) text += ", used " + format_bytes(used->value);
    if (limit == nullptr && used != nullptr && total != nullptr) text += " of " + format_bytes(total->value);
  };
  add_limit(message);
  if (message.size("limit") == nullptr)
    for (const Message& other : diagnosis.supporting)
      if (other.size("limit") != nullptr) {
        add_limit(other);
        break;
      }
  if (const Bytes* tried = message.size("tried"))
    text += formatted("; {} were asked for", format_bytes(tried->value));
  return text;
}

// TensorFlow's message is the same for the host's allocator.
bool is_on_host(const Message& message) {
  return message.word("place") == "CPU" || message.word("allocator").starts_with("cpu") ||
         message.word("allocator") == "mklcpu";
}

// The driver's code is the same for pinned memory; the program's own words on that line say which it was.
bool line_speaks_of_pinned(const Evidence& evidence, int64_t line) {
  return std::ranges::any_of(evidence.messages, [&](const Message& other) {
    return is_general(other) && other.line == line && !other.word("on_pinned").empty();
  });
}

// Before 4.19 the kernel scored one process and killed a child of it, on the next line.
void take_real_victim(const Evidence& evidence, Message& message) {
  if (message.word("sacrifices").empty()) return;
  for (const Message& other : evidence.messages) {
    if (other.row->name != "kernel.victim" || other.line < message.line ||
        other.line > message.line + kVictimReach)
      continue;
    for (const auto& [name, value] : other.bytes) message.bytes[name] = value;
    for (const auto& [name, value] : other.counts) message.counts[name] = value;
    for (const auto& [name, value] : other.words) message.words[name] = value;
    return;
  }
}

void support(const Evidence& evidence, Diagnosis& diagnosis) {
  for (const Message& message : evidence.messages) {
    const Sign sign = message.row->sign;
    if (diagnosis.message && message.row == diagnosis.message->row && message.line == diagnosis.message->line)
      continue;
    const bool counts =
        is_memory(sign) || sign == Sign::killed || sign == Sign::maybe_device || sign == Sign::detail;
    if (counts) diagnosis.supporting.push_back(message);
  }
}

// A failure that was caught, a batch that was skipped, ended no run.
void say_that_it_went_on(const Message& message, const Evidence& evidence, Diagnosis& diagnosis) {
  const auto end =
      std::find_if(evidence.messages.rbegin(), evidence.messages.rend(), [&](const Message& one) {
        return one.row->sign == Sign::finished && one.file == message.file &&
               one.last_line > message.last_line;
      });
  if (end != evidence.messages.rend()) {
    diagnosis.notes.push_back(formatted("the run continued after it, and ended at line {}: {}",
                                        format_count(end->last_line), end->quote));
  } else if (evidence.last_step_line > message.last_line && evidence.last_step > message.step &&
             message.step >= 0) {
    diagnosis.notes.push_back(formatted("the run continued after it, to step {} at line {}",
                                        format_count(evidence.last_step),
                                        format_count(evidence.last_step_line)));
  }
}

void diagnose_memory(const Message& message, const Evidence& evidence, Diagnosis& diagnosis) {
  diagnosis.out_of_memory = message.row->sign == Sign::refused_by_plan ? Verdict::no : Verdict::yes;
  diagnosis.message = message;
  support(evidence, diagnosis);
  take_real_victim(evidence, *diagnosis.message);
  const Meaning& meaning = *meaning_of(message.row->sign);
  diagnosis.cause = meaning.cause;
  diagnosis.certainty = meaning.certainty;
  diagnosis.headline = meaning.headline;
  const bool pinned =
      message.row->sign == Sign::device_refused && (message.during.find("pinned") != std::string_view::npos ||
                                                    line_speaks_of_pinned(evidence, message.line));
  if (pinned || message.word("allocator").ends_with("host_bfc")) {
    diagnosis.cause = Cause::pinned_host;
    diagnosis.headline = "out of pinned memory of the host";
    diagnosis.reason = "the allocation was one of pinned memory of the host, for transfers";
  } else if (is_on_host(message)) {
    diagnosis.cause = Cause::host_refused;
    diagnosis.headline = "out of memory on the host";
    diagnosis.reason = host_reason(message, diagnosis);
  } else if (message.row->sign == Sign::device_full) {
    diagnosis.headline += device_name(message);
    if (message.row->name == "vllm.startup_free") {
      diagnosis.cause = Cause::other_processes;
      diagnosis.certainty = Certainty::likely;
      diagnosis.reason = formatted(
          "the server holds nothing yet, and only {} are free{}", format_bytes(message.size("free")->value),
          message.size("total") != nullptr ? " of " + format_bytes(message.size("total")->value) : "");
    } else if (message.row->name == "sglang.unbalanced") {
      diagnosis.cause = Cause::other_processes;
      diagnosis.certainty = Certainty::likely;
      diagnosis.reason = message.row->words;
    } else if (message.row->name == "xla.hbm") {
      diagnosis.certainty = Certainty::certain;
      diagnosis.reason = message.row->words;
      if (const Bytes* missing = message.size("short")) diagnosis.missing = missing->value;
    } else {
      diagnose_device(message, diagnosis);
    }
  } else if (message.row->sign == Sign::device_refused) {
    diagnosis.headline += device_name(message);
    diagnosis.reason = std::string(message.row->words) + ": this run's own need, another process, or a limit";
  } else if (message.row->sign == Sign::software_cap) {
    const Bytes* would = message.size("tried_total");
    const Bytes* allowed = message.size("allowed");
    diagnosis.reason = message.row->words;
    if (would != nullptr && allowed != nullptr) {
      diagnosis.reason = formatted("{} would be in use, and {} may be", format_bytes(would->value),
                                   format_bytes(allowed->value));
      diagnosis.missing = std::max<int64_t>(would->value - allowed->value, 0);
    }
  } else if (message.row->sign == Sign::refused_by_plan) {
    diagnosis.reason =
        formatted("{} needs {}, and {} may be used", message.word("where"),
                  format_bytes(message.size("needed")->value), format_bytes(message.size("allowed")->value));
    diagnosis.missing = std::max<int64_t>(message.size("needed")->value - message.size("allowed")->value, 0);
  } else {
    diagnosis.reason = host_reason(*diagnosis.message, diagnosis);
  }
  if (diagnosis.message->during.empty() == false &&
      diagnosis.message->during.find("optimizer") != std::string_view::npos &&
      diagnosis.cause == Cause::capacity)
    diagnosis.notes.emplace_back(
        "it happened where the optimizer's states are made or used: they are what to shrink first");
  const Bytes* requested = message.row->sign == Sign::device_full ? message.size("tried") : nullptr;
  if (requested != nullptr) diagnosis.tensor = requested_tensor(*requested, evidence);
  if (diagnosis.tensor) diagnosis.notes.push_back(tensor_words(*requested, *diagnosis.tensor));
  say_that_it_went_on(message, evidence, diagnosis);
}

// The verdict on an unknown program, by its words.
void diagnose_by_words(const Message& message, const Evidence& evidence, Diagnosis& diagnosis) {
  diagnosis.out_of_memory = Verdict::yes;
  diagnosis.message = message;
  support(evidence, diagnosis);
  diagnosis.cause = cause_by_words(message);
  diagnosis.certainty = Certainty::likely;
  const Bytes* tried = message.size("tried");
  const std::string requested =
      tried != nullptr ? formatted("; {} were asked for", format_bytes(tried->value)) : "";
  if (diagnosis.cause == Cause::device_unspecified) {
    diagnosis.headline = "out of memory on " + device_name(message);
    diagnosis.reason =
        "an error speaks of a device's memory: this run's own need, another process, or a limit" + requested;
  } else if (diagnosis.cause == Cause::software_cap) {
    diagnosis.headline = "out of memory at a limit set by software";
    diagnosis.reason = "an error speaks of a limit on memory, which a program keeps by itself";
  } else if (!message.word("ended_for").empty() || diagnosis.cause == Cause::shared_memory ||
             diagnosis.cause == Cause::host_cgroup || diagnosis.cause == Cause::host_scheduler) {
    const auto meant = std::ranges::find(kMeanings, diagnosis.cause, &Meaning::cause);
    diagnosis.headline = meant->headline;
    diagnosis.reason = message.row->words;
  } else if (diagnosis.cause == Cause::cache_too_small) {
    diagnosis.headline = meaning_of(Sign::cache_too_small)->headline;
    diagnosis.reason = "an error speaks of a server's cache, which is full";
  } else if (diagnosis.cause == Cause::pinned_host) {
    diagnosis.headline = "out of pinned memory of the host";
    diagnosis.reason = "an error speaks of pinned memory of the host" + requested;
  } else {
    diagnosis.headline = "out of memory on the host";
    diagnosis.reason = "an error speaks of the host's memory" + requested;
  }
  say_that_it_went_on(message, evidence, diagnosis);
}

void diagnose_unclear(const Message& message, const Evidence& evidence, Diagnosis& diagnosis) {
  if (is_general(message) && !is_vague(message)) return diagnose_by_words(message, evidence, diagnosis);
  diagnosis.out_of_memory = Verdict::possibly;
  diagnosis.message = message;
  support(evidence, diagnosis);
  const Meaning& meaning = *meaning_of(message.row->sign);
  diagnosis.cause = meaning.cause;
  diagnosis.certainty = meaning.certainty;
  diagnosis.headline = is_vague(message) ? "an error speaks of memory, which may be why" : meaning.headline;
  diagnosis.reason = message.row->words;
  if (message.row->name.ends_with(".alloc_failed") || message.row->name == "torch.nvml_assert")
    diagnosis.certainty = Certainty::likely;
}

void diagnose_other(const Message& message, Diagnosis& diagnosis) {
  diagnosis.cause = Cause::other_failure;
  diagnosis.certainty = is_generic(message) ? Certainty::possible : Certainty::likely;
  diagnosis.message = message;
  diagnosis.headline = "memory did not run out: the log shows another failure";
  diagnosis.reason = message.row->words;
}

}  // namespace

std::string_view name_of(Cause cause) {
  constexpr std::array<std::string_view, 21> kNames = {
      "none",         "capacity",        "larger_than_device", "other_processes", "fragmentation",
      "software_cap", "cache_too_small", "host_fallback",      "anomaly",         "device_unspecified",
      "pinned_host",  "host_machine",    "host_cgroup",        "host_scheduler",  "host_daemon",
      "host_refused", "shared_memory",   "refused_by_plan",    "killed",          "library_unclear",
      "other_failure"};
  return kNames[static_cast<size_t>(cause)];
}

Diagnosis diagnose(const Evidence& evidence) {
  Diagnosis diagnosis;
  const Message* const memory = strongest(evidence);
  const Message* const other = other_failure(evidence);
  const Message* const killed = first_with(evidence, Sign::killed);
  const Message* const unclear = first_unclear(evidence);
  const bool other_first = other != nullptr && (killed == nullptr || ends_the_job(*other) ||
                                                (other->line < killed->line && !is_sent_to_others(*other)));
  if (memory != nullptr) {
    diagnose_memory(*memory, evidence, diagnosis);
  } else if (unclear != nullptr && (other == nullptr || is_generic(*other)) &&
             !(is_vague(*unclear) && killed != nullptr && !other_first)) {  // a kill says more
    diagnose_unclear(*unclear, evidence, diagnosis);
  } else if (killed != nullptr && !other_first) {
    diagnose_unclear(*killed, evidence, diagnosis);
  } else if (other != nullptr) {
    diagnose_other(*other, diagnosis);
  } else {
    diagnosis.headline = "no sign of memory running out, nor of another failure that is known";
    diagnosis.certainty = Certainty::likely;
  }
  diagnosis.trains_adapters = std::ranges::any_of(
      evidence.messages, [](const Message& message) { return message.row->name == "shape.adapters"; });
  if (diagnosis.message) diagnosis.program = program_of(evidence, *diagnosis.message);
  add_steps(diagnosis);
  return diagnosis;
}

}  // namespace plimsoll::doctor
