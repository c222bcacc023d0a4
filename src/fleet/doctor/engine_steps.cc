// The next steps for programs that answer with a model, and for llama.cpp's own training: by their own options.
#include <vector>

#include "fleet/doctor/diagnosis.h"

namespace plimsoll::doctor {
namespace {

// `lossless`: answers stay what they were.
struct EngineStep {
  const char* what;
  bool lossless = true;
};

std::vector<EngineStep> device_steps(Program program) {
  switch (program) {
    case Program::llamacpp:
      return {
          {"fewer layers on the GPU: -ngl N (--n-gpu-layers); the CPU computes the others"},
          {"a smaller batch of the prompt (-ub 128, -b 512), fewer requests at a time (-np 1)"},
          {"several GPUs share the layers: --split-mode layer, --tensor-split"},
          {"a shorter context (-c N): the KV cache grows with it", false},
          {"a KV cache in 8 bits: -ctk q8_0 -ctv q8_0, with flash attention (-fa on)", false},
          {"a file of fewer bits (Q4_K_M instead of Q8_0)", false},
      };
    case Program::ollama:
      return {
          {"fewer layers on the GPU: the option num_gpu (PARAMETER num_gpu N in a Modelfile)"},
          {"one model and one request at a time: OLLAMA_MAX_LOADED_MODELS=1, OLLAMA_NUM_PARALLEL=1"},
          {"a shorter context: OLLAMA_CONTEXT_LENGTH, or the option num_ctx", false},
          {"a KV cache in 8 bits: OLLAMA_FLASH_ATTENTION=1 OLLAMA_KV_CACHE_TYPE=q8_0", false},
          {"a tag of fewer bits (q4_K_M), or a smaller model", false},
      };
    case Program::server:
      return {
          {"fewer requests at a time (vLLM: --max-num-seqs, SGLang: --max-running-requests, TGI: "
           "--max-batch-total-tokens)"},
          {"a smaller share for weights and cache, where memory ran out outside of it (vLLM: "
           "--gpu-memory-utilization, SGLang: --mem-fraction-static, TGI: --cuda-memory-fraction)"},
          {"several GPUs share the weights: --tensor-parallel-size (SGLang: --tp, TGI: --num-shard)"},
          {"a shorter length (vLLM: --max-model-len, SGLang: --context-length, TGI: --max-total-tokens)",
           false},
          {"a KV cache in 8 bits (--kv-cache-dtype fp8), weights of fewer bits (AWQ, GPTQ, fp8)", false},
      };
    case Program::llamacpp_training:
      return {
          {"fewer layers on the GPU: -ngl N (--n-gpu-layers); the CPU computes the others"},
          {"a smaller micro-batch: -ub N, below -b"},
          {"a shorter context (-c N): rows are cut to it", false},
          {"adapters instead of all weights: this training holds gradients and states of each weight; "
           "plimsoll plan MODEL --method lora shows what adapters take",
           false},
      };
    case Program::unknown:
      return {};
  }
  return {};
}

std::vector<EngineStep> host_steps(Program program) {
  switch (program) {
    case Program::llamacpp:
      return {
          {"let the file stay mapped (no --no-mmap, no --mlock), and move layers to a GPU (-ngl N)"},
          {"a shorter context (-c N), a KV cache in 8 bits: -ctk q8_0 -ctv q8_0", false},
          {"a file of fewer bits (Q4_K_M instead of Q8_0), or a smaller model", false},
      };
    case Program::ollama:
      return {
          {"one model and one request at a time: OLLAMA_MAX_LOADED_MODELS=1, OLLAMA_NUM_PARALLEL=1"},
          {"a shorter context: OLLAMA_CONTEXT_LENGTH, or the option num_ctx", false},
          {"a tag of fewer bits (q4_K_M), or a smaller model", false},
      };
    case Program::llamacpp_training:
      return {
          {"a smaller micro-batch: -ub N, below -b"},
          {"a shorter context (-c N): rows are cut to it", false},
          {"a smaller model", false},
      };
    case Program::server:
      return {
          {"a smaller part of the cache on the host (vLLM: --swap-space, --cpu-offload-gb)"},
          {"load weights file by file, one process at a time (safetensors)"},
      };
    case Program::unknown:
      return {};
  }
  return {};
}

std::vector<Step> steps_of(const std::vector<EngineStep>& engine_steps) {
  std::vector<Step> steps;
  for (const EngineStep& step : engine_steps) steps.push_back({step.what, 0, step.lossless});
  return steps;
}

}  // namespace

std::vector<Step> engine_device_steps(Program program) { return steps_of(device_steps(program)); }
std::vector<Step> engine_host_steps(Program program) { return steps_of(host_steps(program)); }

}  // namespace plimsoll::doctor
