// The verdict on a log or a snapshot, a pure function of what was found in it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/doctor/evidence.h"
#include "fleet/doctor/tensors.h"

namespace plimsoll::doctor {

constexpr size_t kColumns = 100;  // of a report for people, at most

enum class Verdict : uint8_t { no, possibly, yes };
enum class Certainty : uint8_t { possible, likely, certain };

enum class Cause : uint8_t {
  none,                // nothing failed that the log shows
  capacity,            // the device is full of what this run needs
  larger_than_device,  // one allocation is larger than the device
  other_processes,     // others hold the memory that is missing
  fragmentation,       // enough is reserved, in pieces too small
  software_cap,        // a limit set by software, not the memory's end
  cache_too_small,     // a server's share leaves no room for its cache
  host_fallback,       // the driver pages to the host: figures do not bound each other
  anomaly,             // more was free than was requested
  device_unspecified,  // the device was full; the message does not tell what filled it
  pinned_host,
  host_machine,    // the kernel killed: the machine was full
  host_cgroup,     // the kernel killed: a group's limit
  host_scheduler,  // a job's limit
  host_daemon,     // Ray, earlyoom, systemd-oomd, an eviction
  host_refused,    // malloc and the like were refused
  shared_memory,
  refused_by_plan,
  killed,           // by SIGKILL, the sender is unknown
  library_unclear,  // cuBLAS and the like, whose messages hold too little
  other_failure,
};
std::string_view name_of(Cause cause);

// The kind of program that failed, by its log. Steps for a training that is not known are those of trainings.
enum class Program : uint8_t {
  unknown,
  llamacpp,
  llamacpp_training,
  ollama,
  server,  // vLLM and others of its kind
};

struct Step {
  std::string what;
  int64_t saves = 0;         // bytes; 0: not known
  bool lossless = true;      // the result stays what it would have been
  std::string command = {};  // to paste, or empty
  bool shrinks = false;      // the run itself: a planner can compute by how much
  double seconds = 0;        // of a step of the run with it, as planned; 0: not known
};

struct Diagnosis {
  Verdict out_of_memory = Verdict::no;
  Cause cause = Cause::none;
  Certainty certainty = Certainty::certain;
  std::string headline;  // "out of memory on GPU 0"; a whole sentence where memory is not the matter
  std::string reason;    // why this cause
  std::vector<std::string> ruled_out;
  std::vector<std::string> notes;
  std::vector<Step> steps;
  std::optional<Message> message;          // that the verdict rests on
  std::vector<Message> supporting;         // others that agree with it
  int64_t missing = 0;                     // bytes that were not there, at least; 0: unknown
  std::optional<TensorShape> tensor = {};  // that was asked for, where its shape is known
  bool trains_adapters = false;            // by the log
  Program program = Program::unknown;
};

Diagnosis diagnose(const Evidence& evidence);

// The program whose failure the message is; program.cc.
Program program_of(const Evidence& evidence, const Message& failure);
// Steps by a program's own options where memory ran out; none for an unknown one; engine_steps.cc.
std::vector<Step> engine_device_steps(Program program);
std::vector<Step> engine_host_steps(Program program);

// Handles a message with figures of a device; diagnose_device.cc.
void diagnose_device(const Message& message, Diagnosis& diagnosis);
// Adds what to do next, by cause; steps.cc.
void add_steps(Diagnosis& diagnosis);

// For people, at most 100 columns where words allow it, and for machines (docs/reference/json.md).
std::string diagnosis_text(const Diagnosis& diagnosis, const Evidence& evidence, size_t columns = kColumns);
std::string diagnosis_json(const Diagnosis& diagnosis, const Evidence& evidence);

}  // namespace plimsoll::doctor
