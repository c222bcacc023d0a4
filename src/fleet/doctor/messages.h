// Messages that programs print when memory runs out, and others that look like them: one row a message, one
// file a family. Text is compared squeezed, without blanks, so a message is found however it was wrapped.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace plimsoll::doctor {

// The fact that a message proves. The order is that of diagnosis where one log has several: those that prove
// more come first.
enum class Sign : uint8_t {
  device_full,      // an allocation on a device failed; figures tell why
  pinned_host,      // host memory for transfers
  device_refused,   // the same, without figures that could
  software_cap,     // a limit that a program set on itself, or HAMi on it
  cache_too_small,  // an inference server has no room left for its cache
  kernel_kill,      // the kernel killed: the machine was full
  cgroup_kill,      // the kernel killed: a limit of a control group
  scheduler_kill,   // Slurm, Kubernetes: the job's limit
  daemon_kill,      // earlyoom, systemd-oomd, Ray: before the kernel had to
  host_refused,     // malloc, numpy, Python were refused memory
  shared_memory,    // /dev/shm is full, or an object store
  refused_by_plan,  // Plimsoll's own refusal: nothing ran
  killed,           // by SIGKILL, for an unknown reason
  maybe_device,     // often, not always, memory of a device
  other_failure,    // the run failed of something else
  warning,          // speaks of memory, and nothing failed
  detail,           // adds to another message: a limit, a table of tasks
  finished,         // the run came to its end
  place,            // what the program was doing, from its traceback
  step,             // how far it had come
  shape,            // of the run's tensors: batch size, length, vocabulary; or that it trains adapters
};

struct MessageRow {
  std::string_view name;  // "torch.out_of_memory": stable, in JSON
  Sign sign;
  std::string_view anchor;  // a literal; the message begins there
  // Expressions (expression.h) over the text from the anchor on; each gives the figures that it names, and
  // may fail but for the first, which must match unless it is empty.
  std::vector<std::string_view> fields;
  std::string_view words;        // its meaning, for people; of a place: "in the backward pass"
  std::string_view needs = {};   // an expression over the line before the anchor, which must match
  bool one_line = false;         // expressions see the anchor's line only
  std::string_view remedy = {};  // what to do first, where the cause alone does not say it
};

// Rows of failures that are not of memory, added one by one.
struct Failures {
  std::vector<MessageRow> rows;
  void add(std::string_view name, std::string_view anchor, std::string_view first, std::string_view words,
           std::string_view remedy = {}, std::string_view needs = {}) {
    rows.push_back({name, Sign::other_failure, anchor, {first}, words, needs, false, remedy});
  }
};

// Each family's rows, in files of its name.
std::vector<MessageRow> torch_messages();
std::vector<MessageRow> device_messages();     // cuBLAS, NCCL, drivers, HAMi, vLLM
std::vector<MessageRow> engine_messages();     // TensorRT, SGLang, RAPIDS, Ollama, Gaudi, Ascend
std::vector<MessageRow> framework_messages();  // JAX, TensorFlow, Paddle, MPS
std::vector<MessageRow> host_messages();
std::vector<MessageRow> kernel_messages();
std::vector<MessageRow> scheduler_messages();  // Slurm, Kubernetes, Ray, exit codes
std::vector<MessageRow> ranks_messages();      // NCCL, MPI, several processes of one run
std::vector<MessageRow> fault_messages();      // crashes, disks, devices that fail
std::vector<MessageRow> program_messages();    // compilers, databases, heaps of languages, small runtimes
std::vector<MessageRow> other_messages();      // failures of other kinds, and warnings
std::vector<MessageRow> place_messages();
std::vector<MessageRow> shape_messages();
std::vector<MessageRow> general_messages();  // of any runtime, by words

// All of them.
const std::vector<MessageRow>& all_messages();

}  // namespace plimsoll::doctor
