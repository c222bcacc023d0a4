#include "gpu/cuda_card.h"

#include <cuda_runtime.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/units.h"
#include "gpu/card_fault.h"

namespace plimsoll::gpu {
namespace {

constexpr const char* kOtherwise = ", or choose device: cpu (--device cpu)";

std::string version_text(int version) { return formatted("{}.{}", version / 1000, version % 1000 / 10); }

// An error that ends the run: the next call reports what a kernel did wrong.
void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  if (lasts(error)) throw CardFault(cudaGetErrorString(error));
  throw StoppedError(formatted("the card: {}: {}\n  the last checkpoint is intact; continue with --resume",
                               what, cudaGetErrorString(error)));
}

// Checks what opening a card takes, for cards on which others have left too little memory.
void check_opening(cudaError_t error, const char* what) {
  if (error == cudaErrorMemoryAllocation)
    throw DoesNotFitError(formatted("does not fit   the driver refused memory on the GPU {}: {}", what,
                                    cudaGetErrorString(error)));
  check(error, what);
}

// Throws the reason why no card can compute.
[[noreturn]] void refuse(cudaError_t error) {
  int driver = 0;
  cudaDriverGetVersion(&driver);
  if (driver == 0)
    throw UsageError(formatted(
        "device: cuda: no NVIDIA driver was found (libcuda.so.1); install one that supports CUDA {}{}",
        version_text(CUDART_VERSION), kOtherwise));
  if (error == cudaErrorInsufficientDriver)
    throw UsageError(
        formatted("device: cuda: the driver supports CUDA {}, this build needs {}; install a newer driver{}",
                  version_text(driver), version_text(CUDART_VERSION), kOtherwise));
  if (error == cudaErrorNoDevice)
    throw UsageError(
        std::string("device: cuda: the driver lists no GPU; check CUDA_VISIBLE_DEVICES and nvidia-smi") +
        kOtherwise);
  throw UsageError(formatted("device: cuda: the driver does not start: {}; run nvidia-smi for the reason{}",
                             cudaGetErrorString(error), kOtherwise));
}

class CudaEvent : public Event {
 public:
  CudaEvent() { check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "an event"); }
  ~CudaEvent() override { cudaEventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  [[nodiscard]] cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

cudaEvent_t of(const Event& event) { return static_cast<const CudaEvent&>(event).get(); }

void CUDART_CB call_on_host(void* call) { (*static_cast<const std::function<void()>*>(call))(); }

// "GPU-1a2b3c4d-0123-...": as NVML and CUDA_VISIBLE_DEVICES have it.
std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (size_t i = 0; i < sizeof uuid.bytes; ++i) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 0xFU];
  }
  return text;
}

CudaFacts facts_of(int number) {
  cudaDeviceProp properties{};
  CudaFacts facts;
  cudaError_t error = cudaGetDeviceProperties(&properties, number);
  if (error == cudaSuccess) error = cudaDriverGetVersion(&facts.driver);
  if (error != cudaSuccess) refuse(error);
  facts.number = number;
  facts.name = properties.name;
  facts.uuid = uuid_text(properties.uuid);
  facts.card = {10 * properties.major + properties.minor, properties.multiProcessorCount,
                static_cast<int64_t>(properties.sharedMemPerBlockOptin)};
  facts.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  return facts;
}

// Checks a call for a graph: a run can do without, unless a kernel before it failed.
void check_graph(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  if (lasts(error)) throw CardFault(cudaGetErrorString(error));
  throw StoppedError(
      formatted("the card: {}: {}\n  memory.graphs: off (--set memory.graphs=off) runs without graphs; "
                "the last checkpoint is intact; continue with --resume",
                what, cudaGetErrorString(error)));
}

class CudaGraph : public CardGraph {
 public:
  // Takes its memory here, by a queue that is not being captured.
  CudaGraph(cudaGraph_t captured, cudaStream_t queue) {
    size_t nodes = 0;
    cudaError_t error = cudaGraphGetNodes(captured, nullptr, &nodes);
    if (error == cudaSuccess) error = cudaGraphInstantiate(&graph_, captured, 0);
    cudaGraphDestroy(captured);
    check_graph(error, "a graph of a program's calls");
    nodes_ = static_cast<int64_t>(nodes);
    if (const cudaError_t sent = cudaGraphUpload(graph_, queue); sent != cudaSuccess) {
      cudaGraphExecDestroy(graph_);
      check_graph(sent, "a graph's place on it");
    }
  }
  // Launched graphs run to their end.
  ~CudaGraph() override { cudaGraphExecDestroy(graph_); }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  [[nodiscard]] int64_t nodes() const override { return nodes_; }
  [[nodiscard]] cudaGraphExec_t get() const { return graph_; }

 private:
  cudaGraphExec_t graph_ = nullptr;
  int64_t nodes_ = 0;
};

class CudaCard : public Card {
 public:
  explicit CudaCard(int number) : number_(number) {
    check_opening(cudaSetDevice(number), "to choose it");
    for (cudaStream_t& stream : streams_)
      check_opening(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "for a queue");
    stream_ = Stream(of(Queue::compute));
    int shared = 0;
    check(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, number),
          "what a block may have of shared memory");
    stream_.limit_shared(shared);
  }
  ~CudaCard() override {
    abandon();
    for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
  }
  CudaCard(const CudaCard&) = delete;
  CudaCard& operator=(const CudaCard&) = delete;

  [[nodiscard]] MemoryLeft memory_left() const override {
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "what is free of its memory");
    return {static_cast<int64_t>(free), static_cast<int64_t>(total)};
  }
  std::byte* allocate(int64_t bytes) override {
    void* memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, static_cast<size_t>(bytes));
    if (error != cudaSuccess) refuse_memory("card", bytes, error);
    check(cudaMemset(memory, 0, static_cast<size_t>(bytes)), "memory to clear");
    check(cudaDeviceSynchronize(), "memory to clear");
    return static_cast<std::byte*>(memory);
  }
  std::byte* allocate_host(int64_t bytes) override {
    void* memory = nullptr;
    const cudaError_t error = cudaHostAlloc(&memory, static_cast<size_t>(bytes), cudaHostAllocDefault);
    if (error != cudaSuccess) refuse_memory("host", bytes, error);
    std::memset(memory, 0, static_cast<size_t>(bytes));
    return static_cast<std::byte*>(memory);
  }
  void release(std::byte* memory) noexcept override { cudaFree(memory); }
  void release_host(std::byte* memory) noexcept override {
    abandon();
    cudaFreeHost(memory);
  }
  // Copies and fills take the host's address: where the driver has another one for the card, they could not.
  std::string lock_host(std::span<std::byte> memory) override {
    for (const cudaDeviceAttr needed :
         {cudaDevAttrHostRegisterSupported, cudaDevAttrCanUseHostPointerForRegisteredMem}) {
      int has = 0;
      check(cudaDeviceGetAttribute(&has, needed, number_), "what it may copy from");
      if (has == 0) return "the driver copies from no memory but its own";
    }
    const cudaError_t error = cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterDefault);
    if (error == cudaSuccess) return "";
    if (lasts(error)) throw CardFault(cudaGetErrorString(error));
    cudaGetLastError();
    return std::string("the driver: ") + cudaGetErrorString(error);
  }
  void unlock_host(std::byte* memory) noexcept override {
    abandon();
    cudaHostUnregister(memory);
  }

  std::unique_ptr<Event> make_event(const std::string&) override { return std::make_unique<CudaEvent>(); }
  void record(Queue queue, Event& event) override {
    check(cudaEventRecord(gpu::of(event), of(queue)), "an event");
  }
  void wait(Queue queue, const Event& event) override {
    check(cudaStreamWaitEvent(of(queue), gpu::of(event), 0), "a wait");
  }
  void wait_on_host(const Event& event) override { check(cudaEventSynchronize(gpu::of(event)), "a wait"); }
  bool has_come(const Event& event) override {
    const cudaError_t error = cudaEventQuery(gpu::of(event));
    if (error == cudaErrorNotReady) return false;
    check(error, "a wait");
    return true;
  }

  void copy(Queue queue, std::byte* to, std::span<const std::byte> from) override {
    check(cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyDefault, of(queue)), "a copy");
  }
  void fill(Queue queue, std::span<std::byte> bytes, int value) override {
    check(cudaMemsetAsync(bytes.data(), value, bytes.size(), of(queue)), "a fill");
  }
  void call(Queue queue, const std::function<void()>& on_host) override {
    check(cudaLaunchHostFunc(of(queue), call_on_host, const_cast<std::function<void()>*>(&on_host)),
          "a call on the host");
  }
  void run(const std::function<void()>& launches) override { launches(); }
  [[nodiscard]] Stream& stream() override { return stream_; }
  void run_library(const std::function<void(void* stream)>& calls) override { calls(of(Queue::compute)); }

  // By thread: what this one must not ask during a capture (memory, a synchronisation, code that was not
  // loaded) ends it with an error instead of taking place outside of the graph, and other threads are left
  // alone.
  void begin_capture() override {
    check_graph(cudaStreamBeginCapture(of(Queue::compute), cudaStreamCaptureModeThreadLocal),
                "a capture to begin");
    captures_ = true;
  }
  std::unique_ptr<CardGraph> end_capture() override {
    captures_ = false;
    cudaGraph_t captured = nullptr;
    check_graph(cudaStreamEndCapture(of(Queue::compute), &captured), "a capture to end");
    return std::make_unique<CudaGraph>(captured, of(Queue::compute));
  }
  void launch(const CardGraph& graph) override {
    check_graph(cudaGraphLaunch(static_cast<const CudaGraph&>(graph).get(), of(Queue::compute)),
                "a graph to launch");
  }

  void finish() override {
    for (cudaStream_t stream : streams_) check(cudaStreamSynchronize(stream), "what it was given");
  }
  void abandon() noexcept override {
    if (std::exchange(captures_, false)) {
      cudaGraph_t captured = nullptr;
      cudaStreamEndCapture(of(Queue::compute), &captured);
      if (captured != nullptr) cudaGraphDestroy(captured);
    }
    for (cudaStream_t stream : streams_) cudaStreamSynchronize(stream);
    cudaGetLastError();
  }

 private:
  [[nodiscard]] cudaStream_t of(Queue queue) const { return streams_[static_cast<size_t>(queue)]; }

  [[noreturn]] static void refuse_memory(const std::string& whose, int64_t bytes, cudaError_t error) {
    size_t free = 0, total = 0;
    cudaGetLastError();
    const bool known = cudaMemGetInfo(&free, &total) == cudaSuccess;
    throw DoesNotFitError(formatted(
        "the driver refused {} of memory on the {}: {}{}", format_bytes(bytes), whose,
        cudaGetErrorString(error),
        known ? formatted("; of the card {} of {} are free", format_bytes(static_cast<int64_t>(free)),
                          format_bytes(static_cast<int64_t>(total)))
              : ""));
  }

  int number_;
  std::array<cudaStream_t, 3> streams_{};
  Stream stream_;
  bool captures_ = false;
};

}  // namespace

bool built_with_cuda() { return true; }

CudaFacts cuda_facts(const std::string& which) {
  // Code is loaded kernel by kernel, when ops are bound: of a library with thousands of them a run uses few.
  // Read by the driver's first call.
  setenv("CUDA_MODULE_LOADING", "LAZY", 1);
  int cards = 0;
  cudaError_t error = cudaGetDeviceCount(&cards);
  if (error == cudaSuccess && cards == 0) error = cudaErrorNoDevice;
  if (error != cudaSuccess) refuse(error);
  if (which.empty()) return facts_of(0);
  std::string known;
  for (int number = 0; number < cards; ++number) {
    CudaFacts facts = facts_of(number);
    if (which == std::to_string(number) || (which.starts_with("GPU-") && facts.uuid.starts_with(which)))
      return facts;
    known += formatted("{}{} {} ({})", known.empty() ? "" : ", ", number, facts.name, facts.uuid);
  }
  throw UsageError(formatted("device: cuda:{}: the driver lists no such GPU; it lists {}", which, known));
}

std::unique_ptr<Card> open_cuda_card(const std::string& which) {
  return std::make_unique<CudaCard>(cuda_facts(which).number);
}

}  // namespace plimsoll::gpu
