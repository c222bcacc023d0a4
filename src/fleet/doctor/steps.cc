// The next steps, by cause: in order, those that keep the result first.
#include <algorithm>
#include <array>
#include <string_view>

#include "base/format.h"
#include "base/units.h"
#include "fleet/doctor/diagnosis.h"

namespace plimsoll::doctor {
namespace {

using Steps = std::vector<Step>;

// True where memory ran out while weights were loaded: no batch has a part in that.
bool is_of_loading(const Diagnosis& diagnosis) {
  if (!diagnosis.message) return false;
  const std::string_view name = diagnosis.message->row->name;
  return name == "accelerate.dispatched" || name == "exllama.vram" ||
         diagnosis.message->during.find("loaded") != std::string_view::npos;
}

// Lists what is on a device: the tool of its maker.
std::string_view monitor_of(const Message& message) {
  struct Tool {
    std::string_view backends, families, tool;  // families: of rows, by the beginning of their names
  };
  constexpr std::array<Tool, 9> kTools = {
      {{" MPS Metal metal METAL ", " metal. mlx. torch.mps ", "Activity Monitor"},
       {" HIP hip ROCm rocm ", " hip. hsa. amdgpu. ", "rocm-smi"},
       {" XPU ", " ipex. level_zero. sycl. ", "xpu-smi"},
       {" NPU CANN aclrt rtMalloc ", " ascend. ", "npu-smi info"},
       {" HPU ", " gaudi. ", "hl-smi"},
       {" MLU ", " mlu. ", "cnmon"},
       {" MUSA musa ", " musa. ", "mthreads-gmi"},
       {" TPU ", " xla.hbm xla.tpu xla.unlikely ", "tpu-info"},
       {" ", " neuron. ", "neuron-top"}}};
  const std::string word = message.word(message.word("backend").empty() ? "on_device" : "backend");
  const std::string backend = formatted(" {} ", word);
  const std::string_view name = message.row->name;
  const std::string family = formatted(" {} ", name.substr(0, name.find('.') + 1));
  const std::string part = formatted(" {} ", name.substr(0, name.find('_')));
  for (const Tool& tool : kTools)
    if ((backend.size() > 2 && tool.backends.find(backend) != std::string_view::npos) ||
        tool.families.find(family) != std::string_view::npos ||
        tool.families.find(part) != std::string_view::npos)
      return tool.tool;
  const std::string_view quote = message.quote;
  for (const std::string_view source : {"hip_", "rocdevice", "/rocm"})  // of ROCm's own runtime
    if (quote.find(source) != quote.npos) return "rocm-smi";
  return "nvidia-smi";
}

bool happened(const Diagnosis& diagnosis, std::string_view where) {
  return diagnosis.message && diagnosis.message->during.find(where) != std::string_view::npos;
}

// The least that the failing process needs, where its message states what it holds.
int64_t own_need(const Message& message) {
  const Bytes* own =
      message.size("this_process") != nullptr ? message.size("this_process") : message.size("allocated");
  const Bytes* tried = message.size("tried");
  if (own == nullptr || tried == nullptr) return 0;
  return own->value + tried->value;
}

int64_t idle_bytes(const Message& message) {
  if (const Bytes* unallocated = message.size("unallocated")) return unallocated->value;
  const Bytes* reserved = message.size("reserved");
  const Bytes* allocated = message.size("allocated");
  return reserved != nullptr && allocated != nullptr && reserved->value > allocated->value
             ? reserved->value - allocated->value
             : 0;
}

// The idle pieces, joined, would have been enough.
bool idle_would_do(const Message& message, int64_t missing) {
  const Bytes* tried = message.size("tried");
  const int64_t wanted = missing > 0 ? missing : tried != nullptr ? tried->value : 0;
  return wanted > 0 && idle_bytes(message) >= wanted;
}

// Sharing a device by hand runs into the same again; the queue starts nothing next to others that has no room
// for all it will take.
void add_queue(const Diagnosis& diagnosis, Steps& steps) {
  const int64_t need = diagnosis.message ? own_need(*diagnosis.message) : 0;
  const std::string command =
      need > 0 ? formatted("plimsoll queue add --devices 1 --memory {}MiB --host-memory 16GiB -- COMMAND",
                           (need + kMiB - 1) / kMiB)
               : "";
  steps.push_back(
      {"let plimsoll queue share the device: a run starts where all that it will take is free beside its "
       "neighbours (COMMAND is yours, what it takes of the host a guess; plimsoll queue run starts it)",
       0, true, command});
}

Step expandable_segments(int64_t idle) {
  return {"let the allocator join its pieces (PyTorch 2.1 or later, Linux): expandable segments", idle, true,
          "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"};
}

void shrink(Steps& steps, const char* what, bool lossless = true) {
  steps.push_back({what, 0, lossless, "", true});
}

// Means that shrink a program's need, of a training run where no other is known; bytes depend on the model, and --recipe plans them.
void add_shrinking(const Diagnosis& diagnosis, Steps& steps) {
  if (diagnosis.program != Program::unknown) {
    for (Step& step : engine_device_steps(diagnosis.program)) steps.push_back(std::move(step));
    return;
  }
  if (diagnosis.tensor && diagnosis.tensor->is_logits)
    shrink(steps,
           "a loss that never stores the logits: fused or chunked cross-entropy (Liger's use_liger_kernel; "
           "Plimsoll: memory.loss_chunk)");
  if (happened(diagnosis, "evaluation")) {
    steps.push_back(
        {"evaluate in smaller batches, and move results to the host as they come "
         "(per_device_eval_batch_size, eval_accumulation_steps)"});
  } else if (happened(diagnosis, "generation")) {
    steps.push_back({"generate for fewer sequences at a time"});
  } else if (is_of_loading(diagnosis)) {
    steps.push_back(
        {"load weights in the type they train in, straight to their device (torch_dtype, "
         "low_cpu_mem_usage)"});
    shrink(steps, "a base in 4 bits (QLoRA), or a smaller model", false);
    return;
  } else if (happened(diagnosis, "optimizer")) {
    // The memory of these states does not depend on the batch.
    shrink(steps,
           "offload or shard optimizer states, gradients and weights (ZeRO, FSDP; Plimsoll: memory.offload)");
    shrink(steps, "smaller optimizer states: 8-bit AdamW, Adafactor", false);
    if (!diagnosis.trains_adapters)
      shrink(steps, "adapters instead of full fine-tuning (LoRA, QLoRA)", false);
    return;
  } else {
    shrink(steps, "halve the micro-batch and double the accumulation: the effective batch stays");
    shrink(steps, "recompute activations (gradient checkpointing)");
  }
  shrink(steps,
         "offload or shard optimizer states, gradients and weights (ZeRO, FSDP; Plimsoll: memory.offload)");
  shrink(steps, "smaller optimizer states: 8-bit AdamW, Adafactor", false);
  if (!diagnosis.trains_adapters) shrink(steps, "adapters instead of full fine-tuning (LoRA, QLoRA)", false);
  shrink(steps, "shorter sequences", false);
}

// The share of the device that was free when a server asked for more: rounded down, as it is to fit.
void add_server_share(const Message& message, Steps& steps) {
  const Bytes* free = message.size("free");
  const Bytes* total = message.size("total");
  const int64_t percent =
      free != nullptr && total != nullptr ? std::min<int64_t>(99, 100 * free->least() / total->most()) : 0;
  const std::string share = (percent < 10 ? "0.0" : "0.") + std::to_string(percent);
  if (percent > 0)
    steps.push_back(
        {formatted(
             "let the server ask for a share that is free: gpu_memory_utilization of {} at most; what is "
             "left holds its weights and its cache",
             share),
         0, true, "--gpu-memory-utilization " + share});
  steps.push_back({formatted("free what others hold on the device ({} lists them), and start it unchanged",
                             monitor_of(message))});
}

void device_steps(const Diagnosis& diagnosis, Steps& steps) {
  const Message& message = *diagnosis.message;
  const bool cuda = message.word("backend").empty() || message.word("backend") == "CUDA" ||
                    message.word("backend") == "HIP";
  switch (diagnosis.cause) {
    case Cause::other_processes: {
      if (message.row->name == "vllm.startup_free") return add_server_share(message, steps);
      const int64_t need = own_need(message);
      steps.push_back(
          {formatted("run it unchanged where {} free, or when the others have ended ({} lists them)",
                     need > 0 ? formatted("more than {} are", format_bytes(need)) : std::string("enough is"),
                     monitor_of(message))});
      add_queue(diagnosis, steps);
      if (cuda && idle_would_do(message, diagnosis.missing))
        steps.push_back(expandable_segments(idle_bytes(message)));
      add_shrinking(diagnosis, steps);
      break;
    }
    case Cause::fragmentation:
      if (cuda) steps.push_back(expandable_segments(idle_bytes(message)));
      steps.push_back({"run it once more unchanged: where the pieces lie depends on the order of lengths"});
      add_shrinking(diagnosis, steps);
      break;
    case Cause::larger_than_device:
      steps.push_back(
          {"the same again fails the same way: something asks for it in one piece. Look for a batch, a "
           "sequence or a product that is far larger than meant"});
      // No batch is small enough for a size that was computed wrong.
      if (message.word("tried").empty()) add_shrinking(diagnosis, steps);
      break;
    case Cause::anomaly:
      steps.push_back({"run it once more unchanged"});
      steps.push_back({formatted(
          "if it fails again: look for another process that takes memory for moments ({}), and for the "
          "driver's messages (dmesg)",
          monitor_of(message))});
      break;
    case Cause::host_fallback:
      steps.push_back({"switch the driver's fallback to system memory off, so that figures mean the device"});
      add_shrinking(diagnosis, steps);
      break;
    default:
      if (cuda && idle_would_do(message, diagnosis.missing))
        steps.push_back(expandable_segments(idle_bytes(message)));
      add_shrinking(diagnosis, steps);
  }
}

void host_steps(const Diagnosis& diagnosis, Steps& steps) {
  const Message& message = *diagnosis.message;
  switch (diagnosis.cause) {
    case Cause::host_scheduler:
      steps.push_back(
          {"ask the scheduler for more memory: sbatch --mem or --mem-per-cpu; `sacct -j JOB -o MaxRSS` has "
           "what was used"});
      break;
    case Cause::host_cgroup:
      steps.push_back({"raise the group's limit: docker run --memory, resources.limits.memory, MemoryMax="});
      break;
    case Cause::host_daemon:
      steps.push_back({"run fewer tasks at a time on the node, or ask for more memory for each"});
      break;
    case Cause::host_machine:
      steps.push_back(
          {"see what else was running: the kernel's table of tasks above the message has each one's pages"});
      break;
    case Cause::host_refused:
      steps.push_back(
          {"see which limit refused it: `ulimit -v`, /proc/sys/vm/overcommit_memory, free memory and swap"});
      if (const Bytes* tried = message.size("tried"); tried != nullptr && tried->value >= 64 * kGiB)
        steps.push_back(
            {format_bytes(tried->value) +
             " in one piece is more than most machines have: look for a shape that is larger than meant"});
      break;
    default:
      break;
  }
  if (diagnosis.program != Program::unknown) {
    for (Step& step : engine_host_steps(diagnosis.program)) steps.push_back(std::move(step));
    return;
  }
  steps.push_back(
      {"fewer loader processes and a smaller prefetch: each one holds batches, and often a copy of the data "
       "set's index"});
  steps.push_back(
      {"read data by row groups or memory-mapped instead of whole files (keep_in_memory: false)"});
  steps.push_back(
      {"load weights once, in the type they train in, straight to their device (low_cpu_mem_usage, "
       "safetensors)"});
  steps.push_back({"offload less to the host, or to disk"});
}

void library_steps(const Diagnosis& diagnosis, Steps& steps) {
  const Message& message = *diagnosis.message;
  const std::string_view tool = monitor_of(message);
  steps.push_back(
      {formatted("see what is free on the device when the library starts ({}), and look for an earlier "
                 "error in the log{}",
                 tool, tool == "nvidia-smi" ? ": CUDA_LAUNCH_BLOCKING=1 names the right place" : "")});
  if (diagnosis.program != Program::unknown) return add_shrinking(diagnosis, steps);
  steps.push_back({"compare the library's version with the one that PyTorch was built for"});
  steps.push_back({"halve the micro-batch and double the accumulation: if that helps, it was memory"});
}

// Returns true if the message has a step of its own.
bool add_remedy(const Diagnosis& diagnosis, Steps& steps) {
  const std::string_view remedy = diagnosis.message->row->remedy;
  if (!remedy.empty()) steps.push_back({std::string(remedy)});
  return !remedy.empty();
}

void add_by_cause(Diagnosis& diagnosis, Steps& steps) {
  switch (diagnosis.cause) {
    case Cause::capacity:
    case Cause::larger_than_device:
    case Cause::other_processes:
    case Cause::fragmentation:
    case Cause::host_fallback:
    case Cause::anomaly:
      return device_steps(diagnosis, steps);
    case Cause::device_unspecified:
      steps.push_back({formatted("see what else is on the device before the run starts: {}",
                                 monitor_of(*diagnosis.message))});
      return add_shrinking(diagnosis, steps);
    case Cause::software_cap:
      steps.push_back(
          {"raise or lift the limit: set_per_process_memory_fraction, per_process_memory_fraction in the "
           "allocator's variable, "
           "the container's device share, the machine's heap (-Xmx, --max-old-space-size)",
           diagnosis.missing});
      return add_shrinking(diagnosis, steps);
    case Cause::cache_too_small:
      steps.push_back({"give the server a larger share of the device (gpu_memory_utilization)"});
      steps.push_back({"serve a shorter length (max_model_len)", 0, false, ""});
      return;
    case Cause::pinned_host:
      if (diagnosis.program == Program::llamacpp || diagnosis.program == Program::ollama) {
        steps.push_back({"pin no memory: GGML_CUDA_NO_PINNED=1"});
        return;
      }
      steps.push_back({"pin less: pin_memory=False, fewer loader processes, a smaller prefetch"});
      steps.push_back({"raise the limit on locked memory (ulimit -l) where one is set"});
      return;
    case Cause::shared_memory:
      steps.push_back(
          {"a larger /dev/shm: docker run --shm-size=8g or --ipc=host; in Kubernetes an emptyDir of medium "
           "Memory"});
      steps.push_back({"fewer loader processes, or none (num_workers=0)"});
      return;
    case Cause::host_machine:
    case Cause::host_cgroup:
    case Cause::host_scheduler:
    case Cause::host_daemon:
    case Cause::host_refused:
      return host_steps(diagnosis, steps);
    case Cause::refused_by_plan:
      steps.push_back({"the lines below the refusal name what would fit", 0, true, ""});
      return;
    case Cause::killed:
      steps.push_back(
          {"see who killed it: `dmesg -T | grep -i -A1 'killed process'`, memory.events of its control "
           "group, `sacct -j JOB -o State,MaxRSS`, `kubectl describe pod POD`, `docker inspect CONTAINER`"});
      steps.push_back({"if the kernel did: run `plimsoll doctor` on what these say"});
      return;
    case Cause::library_unclear:
      return library_steps(diagnosis, steps);
    case Cause::other_failure:
    case Cause::none:
      return;
  }
}

}  // namespace

void add_steps(Diagnosis& diagnosis) {
  const bool has_its_own = diagnosis.message && add_remedy(diagnosis, diagnosis.steps);
  if (!has_its_own) add_by_cause(diagnosis, diagnosis.steps);
}

}  // namespace plimsoll::doctor
