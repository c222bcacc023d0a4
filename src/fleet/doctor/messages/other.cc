// Failures of other kinds: a run that ended of one of these did not run out of memory, whatever else its log
// has about memory. And warnings that only sound like it.
#include "fleet/doctor/messages.h"

namespace plimsoll::doctor {

std::vector<MessageRow> other_messages() {
  const auto failure = [](std::string_view name, std::string_view anchor, std::string_view first,
                          std::string_view words, std::string_view needs = {}) {
    return MessageRow{name, Sign::other_failure, anchor, {first}, words, needs};
  };
  const auto finished = [](std::string_view name, std::string_view anchor, std::string_view needs = {}) {
    return MessageRow{name, Sign::finished, anchor, {}, "the run came to its end", needs};
  };
  return {
      failure("cuda.assert", "CUDA error: device-side assert triggered", "",
              "a kernel's own check failed: mostly an index or label out of range"),
      failure("cuda.illegal_access", "an illegal memory access was encountered", "",
              "a kernel read or wrote outside of its memory: a bug, not want of memory"),
      failure("cuda.illegal_access", "cudaErrorIllegalAddress", "",
              "a kernel read or wrote outside of its memory: a bug, not want of memory"),
      failure("cuda.misaligned", "misaligned address", "", "a kernel used an address that is not aligned",
              R"(CUDA error: $)"),
      failure("cuda.no_kernel", "no kernel image is available for execution", "",
              "the build has no kernels for this device"),
      failure("cuda.unspecified_launch", "unspecified launch failure", "", "a kernel crashed",
              R"(CUDA error: $)"),
      failure("cuda.ordinal", "invalid device ordinal", "", "a device was asked for that is not there"),
      failure("cuda.initialization", "CUDA error: initialization error", "",
              "CUDA did not start: often a fork after it was in use"),
      failure("cuda.busy", "all CUDA-capable devices are busy or unavailable", "",
              "the device belongs to another process alone, or does not answer"),
      failure("cuda.busy", "busy or unavailable", "",
              "the device belongs to another process alone, or does not answer",
              R"(CUDA-capable device (?: \( s \) | s )? (?: is/are | is | are )? $)"),
      failure("cuda.busy", "cudaErrorDevicesUnavailable", "",
              "the device belongs to another process alone, or does not answer"),
      failure("cuda.driver_version", "CUDA driver version is insufficient", "",
              "the driver is older than the build asks for"),
      failure("cuda.ecc", "uncorrectable ECC error encountered", "", "the device's memory is defective"),
      failure(
          "cublas.failure", "CUBLAS_STATUS_",
          R"(^ CUBLAS_STATUS_ (?: EXECUTION_FAILED | INVALID_VALUE | NOT_SUPPORTED | ARCH_MISMATCH | INTERNAL_ERROR | MAPPING_ERROR ) )",
          "cuBLAS failed of something else than memory"),
      failure(
          "cudnn.failure", "CUDNN_STATUS_",
          R"(^ CUDNN_STATUS_ (?: EXECUTION_FAILED | BAD_PARAM | NOT_SUPPORTED | INTERNAL_ERROR | VERSION_MISMATCH | MAPPING_ERROR ) )",
          "cuDNN failed of something else than memory", R"((?: error: | Error: ) .* $)"),
      failure("loss.not_finite", "Loss is nan", "", "the loss is not finite"),
      failure("loss.nan", "loss is NaN", "", "the loss is not finite"),
      failure("loss.scale", "Current loss scale already at minimum", "",
              "the loss scale ran out: gradients are not finite"),
      failure("disk.full", "No space left on device",
              R"(^ No space left on device (?! .{0,4}? : \s* '? /dev/shm/ ))", "the disk is full",
              R"((?: Errno 28 \] | error: | Error: | : | \( os error 28 \) ) ['"]? \s* $)"),
      failure("disk.quota", "Disk quota exceeded", "", "the disk quota is used up",
              R"((?: Errno 122 \] | rror: | : ) \s* $)"),
      failure("files.too_many", "Too many open files", "", "too many files are open (ulimit -n)",
              R"((?: Errno 24 \] | mode: | rror: | : ) \s* $)"),
      failure("time.slurm", "DUE TO TIME LIMIT", "", "the job's time was up"),
      failure("slurm.cancelled", "DUE TO PREEMPTION", "", "the job was preempted"),
      failure("signal.segfault", "Segmentation fault", "",
              "a crash: memory was used that is not there, not too much of it",
              R"((?: ^ | : | \) | error | [0-9] ) \s* $)"),
      failure("exit.sigsegv", "SIGSEGV", "", "a crash (segmentation fault)",
              R"((?: Signal 11 \( | Signals\. | died with < .* ) $)"),
      failure("exit.sigterm", "Signal 15 (SIGTERM)", "", "ended from outside by SIGTERM"),
      failure("exit.143", "143", R"(^ 143 (?= [^0-9.] | $ ))", "ended from outside by SIGTERM",
              R"([Ee]xit(?:ed)? \s* (?: with )? \s* (?: code | status ) :? \s* $)"),
      failure("signal.interrupt", "KeyboardInterrupt", R"(^ KeyboardInterrupt (?! \w))",
              "interrupted at the keyboard", R"(^ $)"),
      failure("torch.devices", "Expected all tensors to be on the same device", "",
              "tensors lie on different devices"),
      failure("torch.shapes", "shapes cannot be multiplied", "", "shapes do not match"),
      failure("torch.size_mismatch", "size mismatch for", "", "weights do not match the model"),
      failure("triton.shared_memory", "out of resource: shared memory", "",
              "a Triton kernel asks for more shared memory of a multiprocessor than there is: another block "
              "size, not less memory"),
      failure(
          "triton.registers", "out of resource: ", R"(^ out of resource: (?! \s? shared memory ))",
          "a Triton kernel asks for more of a multiprocessor than there is (threads, registers, tensor memory): "
          "another block size, not less memory"),
      failure(
          "metal.command", "Command buffer execution failed:",
          R"(^ Command buffer execution failed: (?! Insufficient Memory ))",
          "the GPU gave up a command, and not for want of memory: the system's watchdog, a time limit, or an "
          "error before it"),
      failure("metal.buffers", "Resource limit", R"(^ Resource limit \( [0-9]+ \) exceeded)",
              "Metal keeps no more buffers than that: their number, not their bytes, grew step by step",
              R"(\[ metal::malloc \] $)"),
      failure(
          "loader.static_tls", "cannot allocate memory in static TLS block", "",
          "a library came too late for its storage of threads: import it first (LD_PRELOAD), memory is not "
          "the matter"),
      failure("rocm.page_fault", "Memory access fault by GPU", "",
              "a kernel read or wrote outside of its memory: a bug, not want of memory"),
      failure("rocm.page_fault", "hub] page fault", "",
              "a kernel read or wrote outside of its memory: a bug, not want of memory"),
      failure("metal.assertion", "failed assertion `[MPS",
              R"(^ failed assertion ` \[ MPS (?! .{0,160}? total bytes of NDArray ))",
              "Metal's own check failed: a shape or a buffer that it does not take"),
      failure("rocm.aperture", "HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION", "",
              "a kernel read or wrote outside of its memory: a bug, not want of memory"),
      failure("slurm.unavailable", "Memory required by task is not available", "",
              "the step asks for more memory than the job has: nothing ran"),
      failure("slurm.unavailable", "Memory specification can not be satisfied", "",
              "no node of the partition has the memory that the job asks for: nothing ran"),
      failure("slurm.unavailable", "Requested node configuration is not available", "",
              "no node of the partition has what the job asks for: nothing ran"),
      failure(
          "vllm.profiling", "Error in memory profiling", "",
          "another process let go of memory on the device while the server measured: start it again alone"),
      failure("arrow.capacity", "offset overflow while concatenating arrays", "",
              "one column is longer than Arrow's 32 bits: smaller batches of the map, or large_string"),
      failure("arrow.capacity", "ArrowCapacityError", "",
              "one column is longer than Arrow's 32 bits: smaller batches of the map, or large_string"),
      failure("numpy.too_big", "array is too big", "",
              "an array is larger than any address: a shape that is wrong", R"(ValueError: $)"),
      failure("grpc.message_size", "Received message larger than max", "",
              "a message was larger than gRPC allows", R"(RESOURCE_EXHAUSTED: $)"),
      failure("http.too_many", "429 Client Error: Too Many Requests", "", "a server asked to slow down"),
      failure("python.recursion", "RecursionError: maximum recursion depth exceeded", "",
              "a recursion without end"),
      failure("python.import", "ModuleNotFoundError:", "", "a module is missing", R"(^ $)"),
      failure("python.file", "FileNotFoundError:", "", "a file is missing", R"(^ $)"),
      failure("python.value", "ValueError:", "", "a value was refused", R"(^ $)"),
      failure("python.type", "TypeError:", "", "a type was refused", R"(^ $)"),
      failure("python.key", "KeyError:", "", "a key is missing", R"(^ $)"),
      failure("python.index", "IndexError:", "", "an index is out of range", R"(^ $)"),
      failure("python.attribute", "AttributeError:", "", "an attribute is missing", R"(^ $)"),
      failure("python.assertion", "AssertionError", "", "a check of the program failed", R"(^ $)"),
      failure("python.runtime", "RuntimeError:", "", "the program stopped itself", R"(^ $)"),
      failure("python.os", "OSError:", "", "the system refused something", R"(^ $)"),
      failure("python.connection", "ConnectionError:", "", "a connection failed", R"((?: ^ | \. ) $)"),
      {"tcmalloc.large",
       Sign::warning,
       "tcmalloc: large alloc",
       {R"(^ tcmalloc: large alloc {tried:count} bytes ==)"},
       "a large allocation, which went through"},
      {"docker.not_oom_killed",
       Sign::warning,
       "\"OOMKilled\": false",
       {R"(^ "OOMKilled":false)"},
       "Docker: the container was not killed for memory"},
      {"tensorflow.system_memory",
       Sign::warning,
       "exceeds 10% of free system memory",
       {R"(^ exceeds 10% of free system memory)"},
       "a large allocation, which went through",
       R"(Allocation of {tried:count} $)"},
      finished("trainer.complete", "raining complete", R"([Tt] $)"),
      finished("trainer.finished", "raining finished", R"([Tt] $)"),
      finished("trainer.done", "training is done"),
      finished("fairseq.done", "done training in"),
      finished("transformers.runtime", "train_runtime", R"(['"] $)"),
      finished("lightning.stopped", "`Trainer.fit` stopped:"),
  };
}

std::vector<MessageRow> place_messages() {
  const auto place = [](std::string_view anchor, std::string_view words) {
    return MessageRow{"", Sign::place, anchor, {}, words, {}};
  };
  return {
      place(".backward(", "in the backward pass"),
      place("torch/autograd/", "in the backward pass"),
      place("in training_step", "in the training step"),
      place("optimizer.step(", "in the optimizer step"),
      place("torch/optim/", "in the optimizer step"),
      place("_init_group", "while the optimizer states were made"),
      place("initialize_optimizer_states", "while the optimizer states were made"),
      place("from_pretrained(", "while the model was loaded"),
      place("load_state_dict(", "while weights were loaded"),
      place("_load_pretrained_model", "while the model was loaded"),
      place("torch/nn/modules/module.py", "in the forward pass"),
      place(".forward(", "in the forward pass"),
      place("cross_entropy(", "in the loss"),
      place("evaluation_loop(", "in the evaluation"),
      place("self.evaluate(", "in the evaluation"),
      place("prediction_step(", "in the evaluation"),
      place("nested_concat", "while evaluation results were gathered"),
      place(".generate(", "in generation"),
      place("save_model(", "while the model was saved"),
      place("save_checkpoint(", "while a checkpoint was saved"),
      place("torch.save(", "while a checkpoint was saved"),
      place("_pin_memory", "while batches were pinned"),
      place(".pin_memory(", "while memory was pinned"),
      place("create_optimizer", "while the optimizer was made"),
  };
}

// Shapes of a run in command lines, printed arguments and configurations.
std::vector<MessageRow> shape_messages() {
  std::vector<MessageRow> rows;
  const auto shape = [&rows](std::string_view name, std::string_view anchor, std::string_view first) {
    rows.push_back({name, Sign::shape, anchor, {first}, {}, {}});
  };
  shape("shape.vocabulary", "vocab_size", R"(^ vocab_size ['"]? [:=]? {vocabulary:count})");
  shape("shape.rows", "train_batch_size", R"(^ train_batch_size ['"]? [:=]? {rows:count})");
  shape("shape.rows", "micro_batch_size", R"(^ micro_batch_size ['"]? [:=]? {rows:count})");
  shape("shape.rows", "--batch", R"(^ --batch (?: [-_] size )? =? {rows:count})");
  shape("shape.length", "max_seq_length", R"(^ max_seq_length ['"]? [:=]? {length:count})");
  shape("shape.length", "max_length", R"(^ max_length ['"]? [:=]? {length:count})");
  shape("shape.length", "cutoff_len", R"(^ cutoff_len ['"]? [:=]? {length:count})");
  shape("shape.length", "sequence_len", R"(^ sequence_len ['"]? [:=]? {length:count})");
  shape("shape.length", "seq_len", R"(^ seq_len ['"]? [:=]? {length:count})");
  shape("shape.length", "block_size", R"(^ block_size ['"]? [:=]? {length:count})");
  shape("shape.length", "--len", R"(^ --len (?: gth )? =? {length:count})");
  shape("shape.hidden", "hidden_size", R"(^ hidden_size ['"]? [:=]? {hidden:count})");
  shape("shape.mlp_width", "intermediate_size", R"(^ intermediate_size ['"]? [:=]? {mlp_width:count})");
  shape("shape.layers", "num_hidden_layers", R"(^ num_hidden_layers ['"]? [:=]? {layers:count})");
  shape("shape.heads", "num_attention_heads", R"(^ num_attention_heads ['"]? [:=]? {heads:count})");
  shape("shape.kv_heads", "num_key_value_heads", R"(^ num_key_value_heads ['"]? [:=]? {kv_heads:count})");
  shape("shape.head_dim", "head_dim", R"(^ head_dim ['"]? [:=]? {head_dim:count})");
  shape("shape.adapters", "trainable%", R"(^ trainable% ['"]? [:=]? )");
  return rows;
}

// Words that name the program of a log, of inference engines (program.cc).
std::vector<MessageRow> engine_words() {
  std::vector<MessageRow> rows;
  const auto words_of = [&rows](std::string_view name, std::initializer_list<std::string_view> anchors) {
    for (const std::string_view anchor : anchors) rows.push_back({name, Sign::shape, anchor, {}, {}, {}});
  };
  words_of("program.llamacpp",
           {"ggml_backend_", "ggml_gallocr_", "ggml_cuda", "ggml-cuda", "ggml_vulkan", "ggml_metal",
            "llama_model_load", "llama_kv_cache", "llama_init_from_model", "llama_new_context_with_model",
            "alloc_tensor_range", "llama-server", "llama-cli", "llama.cpp/"});
  words_of("program.llamacpp_training",
           {"llama-finetune", "ggml_opt_", "llama_opt_", "main: opt iter", "main: opt_size", "--lora-out"});
  words_of("program.ollama", {"ollama run", "llama runner", "OLLAMA_", "ollama.listener", "source=sched.go"});
  words_of("program.server", {"(EngineCore", "(VllmWorker", "vllm/v1/", "vllm/worker/", "vllm/executor/",
                              "sglang/srt/", "text_generation_server/", "lmdeploy/"});
  return rows;
}

const std::vector<MessageRow>& all_messages() {
  static const std::vector<MessageRow> kAll = [] {
    std::vector<MessageRow> rows;
    for (const auto& family :
         {torch_messages(), device_messages(), engine_messages(), framework_messages(), host_messages(),
          kernel_messages(), scheduler_messages(), ranks_messages(), program_messages(), fault_messages(),
          other_messages(), place_messages(), shape_messages(), engine_words(), general_messages()})
      rows.insert(rows.end(), family.begin(), family.end());
    for (const std::string_view anchor : {"step", "Step", "iteration"})
      rows.push_back({"", Sign::step, anchor, {}, {}, {}});
    return rows;
  }();
  return kAll;
}

}  // namespace plimsoll::doctor
