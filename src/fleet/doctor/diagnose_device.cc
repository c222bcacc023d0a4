// Explains why an allocation on a device failed, from the figures of its message. They are rounded, so each
// comparison holds for every value that rounds to what was printed.
#include <algorithm>

#include "base/format.h"
#include "base/units.h"
#include "fleet/doctor/diagnosis.h"

namespace plimsoll::doctor {
namespace {

// The memory that a process takes on a device in addition to its tensors: context, kernels, libraries'
// workspaces.
constexpr int64_t kContext = kGiB * 8 / 5;
// On a large device libraries take more in addition: one part in so many of it (NCCL's and HCCL's buffers).
constexpr int64_t kLibrariesShare = 12;
// Others' memory that no figure names counts from here on: context and rounding are below.
constexpr int64_t kWorthNaming = kGiB / 4;
constexpr int64_t kLargeShare = 20;  // of the device, one part in: what lies idle is then worth a cause

struct Figures {
  std::optional<Bytes> tried, total, free, allocated, unallocated, allowed;
  std::optional<Bytes> other;   // in addition to tensors, of the same process
  std::optional<Bytes> others;  // held by other processes
  bool others_named = false;    // by pid, not by subtraction
};

std::optional<Bytes> figure(const Message& message, std::string_view name) {
  const Bytes* bytes = message.size(name);
  return bytes == nullptr ? std::nullopt : std::optional(*bytes);
}

Bytes operator-(const Bytes& a, const Bytes& b) { return {a.value - b.value, a.slack + b.slack}; }
Bytes operator+(const Bytes& a, const Bytes& b) { return {a.value + b.value, a.slack + b.slack}; }

// Our own process may be among those that are named by pid: in a container it does not know its own number.
bool is_own(const Holder& holder, const Figures& figures) {
  if (!figures.allocated || !figures.unallocated) return false;
  const Bytes own = *figures.allocated + *figures.unallocated;
  return holder.bytes.most() >= own.least() && holder.bytes.least() <= own.most() + kContext;
}

void find_others(const Message& message, Figures& figures) {
  const bool own_known = message.size("this_process") != nullptr;
  if (!message.holders.empty()) {
    Bytes sum;
    const bool alone = message.holders.size() == 1 && !own_known && is_own(message.holders[0], figures);
    for (const Holder& holder : message.holders)
      if (!alone) sum = sum + holder.bytes;
    if (alone) return;
    figures.others = sum;
    figures.others_named = true;
    return;
  }
  if (own_known || !figures.total || !figures.free || !figures.allocated || !figures.unallocated) return;
  const Bytes rest = *figures.total - *figures.free - *figures.allocated - *figures.unallocated;
  const int64_t beside = std::max(kContext, figures.total->value / kLibrariesShare);
  if (rest.least() > beside) figures.others = Bytes{rest.value - kContext / 2, rest.slack + kContext / 2};
}

Figures read_figures(const Message& message) {
  Figures figures{figure(message, "tried"),
                  figure(message, "total"),
                  figure(message, "free"),
                  figure(message, "allocated"),
                  figure(message, "unallocated"),
                  figure(message, "allowed"),
                  figure(message, "other"),
                  {},
                  false};
  if (!figures.unallocated && figures.allocated) {
    if (const Bytes* reserved = message.size("reserved"))
      figures.unallocated = *reserved - *figures.allocated;
    // Until 1.3 "cached" does not include what is allocated.
    if (const Bytes* cached = message.size("cached"))
      figures.unallocated = cached->value < figures.allocated->value ? *cached : *cached - *figures.allocated;
  }
  if (figures.unallocated && figures.unallocated->value < 0) figures.unallocated->value = 0;
  find_others(message, figures);
  return figures;
}

std::string text_of(const Bytes& bytes) { return format_bytes(std::max<int64_t>(bytes.value, 0)); }

void conclude(Diagnosis& diagnosis, Cause cause, Certainty certainty, const std::string& reason) {
  diagnosis.cause = cause;
  diagnosis.certainty = certainty;
  diagnosis.reason = reason;
}

// "17179869172.00GiB" is 4 GiB below nothing, as a program without signs prints it.
bool is_beyond_all_devices(const Message& message, Diagnosis& diagnosis) {
  std::string tried = message.word("tried");
  if (tried.empty()) return false;
  tried.insert(std::min(tried.find_first_not_of("0123456789.,"), tried.size()), " ");
  conclude(
      diagnosis, Cause::larger_than_device, Certainty::certain,
      formatted("one allocation of {} is larger than any device: a size that was computed wrong", tried));
  return true;
}

// Larger than the memory of any device, and of any rack of them.
constexpr int64_t kBeyondAll = int64_t{64} << 40;

// Limits first: if one of them is the reason, the device's use shows nothing.
bool is_a_limit(const Figures& f, Diagnosis& diagnosis) {
  if (f.tried && !f.total && f.tried->least() > kBeyondAll) {
    conclude(diagnosis, Cause::larger_than_device, Certainty::certain,
             formatted("one allocation of {} is larger than any device: a size that was computed wrong",
                       text_of(*f.tried)));
    return true;
  }
  if (f.tried && f.total && f.tried->least() > f.total->most()) {
    conclude(diagnosis, Cause::larger_than_device, Certainty::certain,
             formatted("one allocation of {} is larger than the device's {}", text_of(*f.tried),
                       text_of(*f.total)));
    return true;
  }
  if (!f.allowed) return false;
  if (f.tried && f.tried->least() > f.allowed->most()) {
    conclude(diagnosis, Cause::software_cap, Certainty::certain,
             formatted("one allocation of {} is larger than the {} that the process may use",
                       text_of(*f.tried), text_of(*f.allowed)));
    return true;
  }
  if (f.tried && f.free && f.free->most() >= f.tried->least()) {
    conclude(diagnosis, Cause::software_cap, Certainty::certain,
             formatted("{} are free and {} were asked for; the process may use {} only", text_of(*f.free),
                       text_of(*f.tried), text_of(*f.allowed)));
    return true;
  }
  if (f.tried && f.allocated && !f.free) {
    const Bytes all = *f.allocated + *f.tried + f.other.value_or(Bytes{});
    if (f.other && all.most() < f.allowed->least()) {
      conclude(
          diagnosis, Cause::anomaly, Certainty::possible,
          formatted(
              "{} with what was asked for, of {} that may be used: the machine's own memory is full, or the "
              "driver (a virtual machine) gives less",
              text_of(all), text_of(*f.allowed)));
      return true;
    }
    conclude(diagnosis, Cause::software_cap, Certainty::likely,
             formatted("{} and {} more exceed the {} that the process may use", text_of(*f.allocated),
                       text_of(*f.tried), text_of(*f.allowed)));
    return true;
  }
  return false;
}

bool is_fallback(const Figures& f, Diagnosis& diagnosis) {
  if (!f.allocated || !f.unallocated || !f.total) return false;
  const Bytes own = *f.allocated + *f.unallocated;
  if (own.least() <= f.total->most()) return false;
  conclude(
      diagnosis, Cause::host_fallback, Certainty::likely,
      formatted(
          "PyTorch holds {}, more than the device's {}: the driver pages to the host (Windows, WSL), and "
          "figures do not bound each other",
          text_of(own), text_of(*f.total)));
  return true;
}

bool lies_idle(const Figures& f) {
  if (!f.free || !f.unallocated || !f.tried) return false;
  const bool large = !f.total || f.unallocated->most() >= f.total->value / kLargeShare;
  return large && f.free->least() < f.tried->most() &&
         f.free->most() + f.unallocated->most() >= f.tried->least();
}

bool held_by_others(const Figures& f) {
  if (!f.others || !f.tried || f.others->most() < kWorthNaming) return false;
  const int64_t free = f.free ? f.free->most() : 0;
  return free + f.others->most() >= f.tried->least();
}

// Without a figure of what is free: what this run holds leaves far more than was requested.
bool unexplained(const Figures& f) {
  if (f.free || !f.tried || !f.total || !f.allocated || !f.unallocated) return false;
  const Bytes rest = *f.total - *f.allocated - *f.unallocated;
  return rest.least() > f.tried->most() + kContext;
}

std::string others_reason(const Figures& f) {
  std::string text =
      formatted("other processes hold {}{}", f.others_named ? "" : "about ", text_of(*f.others));
  if (f.total) text += " of " + text_of(*f.total);
  if (f.allocated) text += "; this one's tensors " + text_of(*f.allocated);
  if (f.allocated && f.unallocated && f.unallocated->value > 0)
    text += formatted(", and {} that it has reserved lie idle", text_of(*f.unallocated));
  return text + (f.others_named ? "" : "; the sizes add up to that");
}

// PyTorch keeps blocks of up to 1 MiB apart from larger ones, in segments of 2 MiB: what lies idle in one
// pool serves no request of the other.
std::string pool_words(const Bytes& tried) { return tried.most() <= kMiB ? "of up to 1 MiB" : "above 1 MiB"; }

// By the figures alone: less lies idle than was requested, or it may be in pieces that are too small.
void judge_fragmentation(const Figures& f, Diagnosis& diagnosis) {
  if (diagnosis.cause == Cause::fragmentation || !f.unallocated || !f.tried) return;
  if (f.unallocated->most() < f.tried->least()) {
    diagnosis.ruled_out.push_back(formatted("fragmentation: {} lie idle, and {} were asked for",
                                            text_of(*f.unallocated), text_of(*f.tried)));
    return;
  }
  diagnosis.notes.push_back(formatted(
      "fragmentation may have a part: {} lie idle beside the {} that were asked for, and no piece of "
      "the pool of blocks {} was large enough; torch.cuda.memory_summary() says how much of it "
      "is in which pool",
      text_of(*f.unallocated), text_of(*f.tried), pool_words(*f.tried)));
}

void rule_out(const Figures& f, Diagnosis& diagnosis) {
  judge_fragmentation(f, diagnosis);
  if (diagnosis.cause != Cause::other_processes && f.others && f.others_named)
    diagnosis.ruled_out.push_back("other processes: they hold " + text_of(*f.others));
}

}  // namespace

void diagnose_device(const Message& message, Diagnosis& diagnosis) {
  const Figures f = read_figures(message);
  if (f.tried && f.free) diagnosis.missing = std::max<int64_t>(f.tried->value - f.free->value, 0);
  if (is_beyond_all_devices(message, diagnosis) || is_a_limit(f, diagnosis) || is_fallback(f, diagnosis))
    return;
  const bool idle = lies_idle(f);
  const bool enough = f.tried && f.free && f.free->least() >= f.tried->most();
  const bool others = !enough && held_by_others(f);
  if (others && !(idle && f.unallocated->value > f.others->value)) {
    conclude(diagnosis, Cause::other_processes, Certainty::likely, others_reason(f));
  } else if (idle) {
    conclude(diagnosis, Cause::fragmentation, Certainty::likely,
             formatted("{} are reserved and unused, and no piece of {} is among them",
                       text_of(*f.unallocated), text_of(*f.tried)));
  } else if (enough) {
    conclude(diagnosis, Cause::anomaly, Certainty::possible,
             formatted("{} were free and {} asked for: a race, the driver, or no room in one piece",
                       text_of(*f.free), text_of(*f.tried)));
  } else if (unexplained(f)) {
    const Bytes own = *f.allocated + *f.unallocated;
    conclude(
        diagnosis, Cause::other_processes, Certainty::possible,
        formatted(
            "this run holds {} of {}, and {} more did not fit: the rest is not its own, other processes or "
            "a limit",
            text_of(own), text_of(*f.total), text_of(*f.tried)));
  } else if (f.allocated && f.total) {
    conclude(diagnosis, Cause::capacity, Certainty::certain,
             formatted("this run's tensors take {} of {}{}", text_of(*f.allocated), text_of(*f.total),
                       f.tried ? formatted(", and {} more were asked for", text_of(*f.tried)) : ""));
  } else if (f.tried || f.allocated) {
    conclude(diagnosis, Cause::capacity, Certainty::likely,
             (f.tried ? text_of(*f.tried) + " were asked for" : text_of(*f.allocated) + " are in use") +
                 "; who holds the rest is not in the message");
  } else {
    conclude(diagnosis, Cause::device_unspecified, Certainty::possible,
             "the message has no figures: this run's own need, another process, or a limit");
  }
  rule_out(f, diagnosis);
}

}  // namespace plimsoll::doctor
