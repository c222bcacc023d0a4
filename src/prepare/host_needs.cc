#include "prepare/host_needs.h"

#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "base/system_memory.h"
#include "base/units.h"
#include "data/batch/longest_alike.h"
#include "formats/load.h"
#include "ops/linear/nf4.h"
#include "prepare/memory_budget.h"
#include "prepare/order_words.h"
#include "prepare/planned_card.h"
#include "prepare/sequence_shape.h"
#include "ranks/ordered_sum.h"
#include "runs/evaluated_rows.h"
#include "runs/scored_rows.h"
#include "runs/seen_targets.h"
#include "runtime/executor.h"
#include "runtime/gpu_device.h"
#include "runtime/nccl_exchange.h"
#include "weights/low_rank_start.h"
#include "weights/weights.h"

namespace plimsoll {
namespace {

int64_t thread_stack_bytes() {
  rlimit limit{};
  constexpr int64_t kUsual = 8 * kMiB;
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUsual;
  return static_cast<int64_t>(limit.rlim_cur);
}

// Bounds of what runs of every kind were measured to take (tests/loadline, tests/budget_test.py), stated and
// not measured anew: identical commands say identical bytes, and the need that one prints is enough for the
// next. Code and data of the program and its libraries, and the heap without what has a component of its own.
constexpr int64_t kProgramBytes = 32 * kMiB;
constexpr int64_t kProgramDataBytes = 44 * kMiB;  // in VmData's terms, with what planning takes of the heap
constexpr int64_t kArrowBytes = 2 * kMiB;         // code and heap of Arrow, where a data set is read by it

// The largest matrix of a layer: one of each stack, or of each kind, stands for all.
Shape largest_matrix(Experiment shallow) {
  const int64_t layers = shallow.model.delta_net ? std::min<int64_t>(2, shallow.model.layers) : 1;
  shallow.model = shallow.model.with_stacks(std::vector<int64_t>(shallow.model.stacks().size(), layers));
  shallow.lora = shallow.quantised = false;
  shallow.frozen.clear();
  Shape largest = {0, 0};
  const Graph forward = build_forward(shallow, {});
  for (const Tensor& tensor : forward.tensors())
    if (is_persistent(tensor.role) && tensor.parameter.part == WeightPart::body && tensor.shape.rank() == 2 &&
        tensor.shape.elements() > largest.elements())
      largest = tensor.shape;
  return largest;
}

// Quantising holds more than the staging: codes of a piece, and a weight's scales as they are and nested.
int64_t quantising_bytes(const Experiment& experiment) {
  if (!experiment.quantised) return 0;
  const Shape matrix = largest_matrix(experiment);
  // A new weight's values take all of the staging.
  if (experiment.quantisation.format == WeightFormat::int8)
    return kLoadStagingBytes / 4 + 2 * std::max(matrix[0], matrix[1]) * int64_t{sizeof(float)};
  const int64_t scales = nf4_blocks(matrix.elements()) * int64_t{sizeof(float)};
  return kLoadStagingBytes / 8 + scales + scales / 2;
}

// A weight and the part of it that its adapter begins with, while that is found; the adapter of an embedding,
// as it is held and as it is saved.
int64_t start_bytes(const Experiment& experiment) {
  const LoraOptions& lora = experiment.lora_options;
  if (!experiment.lora) return 0;
  int64_t r = lora.r;
  for (const auto& [pattern, rank] : lora.rank_pattern) r = std::max(r, rank);
  if (adapts_embedding(experiment)) return 3 * experiment.model.vocab * r * int64_t{sizeof(float)};
  if (lora.start == AdapterStart::lora) return 0;
  const Shape weight = largest_matrix(experiment);
  // As it is stored and in f32.
  return 2 * weight.elements() * int64_t{sizeof(float)} + low_rank_bytes(weight[0], weight[1], r);
}

// Host memory for a card: staging, and of each program the inputs that are sent to it (train, evaluation, and
// the reference log-probabilities of a preference loss before the first step).
int64_t card_bytes(const Recipe& recipe, const Experiment& experiment) {
  constexpr int64_t kPrograms = 3;
  constexpr int64_t kInputsOfToken = 7, kInputsOfSequence = 6;
  const int64_t samples = std::max(experiment.effective_batch, recipe.eval.micro);
  const SequenceShape shape = train_shape(experiment);
  const int64_t sequences = samples * std::max<int64_t>(shape.documents, 1);
  const int64_t frequencies = experiment.model.rotary() / 2 + 1;
  const int64_t values = samples * shape.tokens * kInputsOfToken +
                         sequences * (kInputsOfSequence + frequencies + experiment.task.outputs);
  return GpuDevice::staging_bytes(recipe.memory.disk_bytes > 0) +
         kPrograms * (values * int64_t{sizeof(float)} + 4 * kKiB);
}

// Code pages and heaps of the thread pool and the libraries that the first step brings in.
Component threads_and_libraries(const CpuSettings& cpu) {
  return {"threads and libraries", 4 * kMiB + cpu.threads * kMiB / 2};
}

// By the size of its file, whose tables may be a third of that estimate; where rows were read, by the tables themselves, with
// what the allocator adds to large blocks and 2 MiB for small files, as in the estimate.
int64_t tokenizer_bytes(const std::filesystem::path& file, const DataSetup* data) {
  const int64_t estimated = Tokenizer::estimated_bytes(file);
  if (data == nullptr || !data->tokenizer) return estimated;
  const int64_t tables = data->tokenizer->resident_bytes();
  return std::min(estimated, tables + tables / 8 + 2 * kMiB);
}

Component staging_of_loading(int64_t more = 0) { return {"staging", kLoadStagingBytes + more}; }

// The allocator keeps memory that the reading thread and the saving thread freed at the same time: up to 1.73 MiB was
// measured on a busy machine, with a row of 1 MiB.
constexpr int64_t kKeptByAllocator = 7 * kMiB / 4;

// A run has loaded its weights before it reads rows, and saves while it does: a long row takes the place of the
// staging of loading. Only a resumed run whose reference log-probabilities are missing loads while it reads.
Component staging_with_rows(const Experiment& experiment, int64_t long_row_bytes) {
  const int64_t start = start_bytes(experiment);
  const int64_t loading = kLoadStagingBytes + quantising_bytes(experiment) + start;
  if (experiment.task.preference.reference == Preference::Reference::given) return {"staging", loading};
  const int64_t saving = kSaveStagingBytes + start + (long_row_bytes > 0 ? kKeptByAllocator : 0);
  return {"staging", std::max(saving, loading - long_row_bytes)};
}

// Host memory that CUDA takes for a card, of this machine or of another one.
Component cuda_on_host(const PlannedCard& card, bool is_here) {
  const CardHere* const here = is_here ? known_card_here() : nullptr;
  const OutsidePart cuda = host_part(card.known(), here == nullptr || !here->facts.library.empty());
  return {formatted("{} ({} +- {})", cuda.name, format_bytes(cuda.bytes), format_bytes(cuda.uncertain)),
          cuda.bytes + cuda.uncertain};
}

// Host memory for programs that are laid out: staging, and the inputs that are sent to the card.
Component beside_the_card(const ArenaLayout& layout) {
  int64_t bytes = GpuDevice::staging_bytes(false);
  for (const ProgramLayout& program : layout.programs) bytes += mirror_bytes(program);
  return {"beside the card", bytes};
}

// Returns what long rows take.
int64_t add_rows(const DataSetup& data, HostNeeds& needs) {
  int64_t virtual_only = 0, long_rows = 0;
  for (const auto* source : {&data.train, &data.eval}) {
    if (!*source) continue;
    const LoaderMemory memory = plan_loader_memory((*source)->dataset, (*source)->rows,
                                                   (*source)->encoder.samples(), (*source)->loader);
    const bool train = source == &data.train;
    const int64_t arrow = (*source)->dataset.expected_bytes(0) > 0 ? kArrowBytes : 0;
    needs.components.push_back(
        {train ? "rows" : "evaluation rows", memory.rows_bytes + (*source)->dataset.index_bytes() + arrow});
    needs.components.push_back({train ? "batches" : "evaluation batches", memory.queue_bytes});
    if (memory.long_row_bytes > 0)
      needs.components.push_back({train ? "longest row" : "longest evaluation row", memory.long_row_bytes});
    virtual_only += memory.slack_bytes + memory.thread_stack_bytes;
    long_rows += memory.long_row_bytes;
  }
  needs.extra_data_bytes += virtual_only;
  return long_rows;
}

// The buffers of MPI, and of sums over ranks; scores of evaluation rows that travel.
void add_ranks(const Recipe& recipe, const Experiment& experiment, const DataSetup* data, HostNeeds& needs) {
  if (recipe.devices == 1) return;
  constexpr int64_t kMpiBytes = 32 * kMiB;  // 20 to 27 were measured
  constexpr int64_t kMpiThreads = 3;        // its own and the watch
  constexpr int64_t kNcclThreads = 4;       // those that connect, launch and move bytes
  const bool by_nccl = exchange_way(recipe) == ExchangeWay::nccl;
  int64_t bytes = kMpiBytes + (by_nccl ? NcclExchange::host_bytes(recipe.devices)
                                       : OrderedSum::staging_bytes(recipe.devices));
  if (data != nullptr && data->eval)
    bytes += ScoredRows::planned_bytes(experiment.task, data->eval->rows.size(), recipe.devices);
  needs.components.push_back({"between processes (MPI, sums)", bytes});
  for (Component& part : exchange_on_host(recipe)) needs.components.push_back(std::move(part));
  const int64_t threads = kMpiThreads + (by_nccl ? kNcclThreads : 0);
  needs.extra_data_bytes += threads * thread_stack_bytes() + 4 * kMpiBytes;
}

}  // namespace

HostNeeds host_needs(const Resolved& resolved, const Experiment& experiment, const CpuSettings& cpu,
                     const DataSetup* data) {
  const Recipe& recipe = resolved.recipe;
  HostNeeds needs;
  needs.baseline_data_bytes = kProgramDataBytes - kProgramBytes;
  needs.components.push_back({"program", kProgramBytes});
  needs.components.push_back(threads_and_libraries(cpu));
  if (const auto file = Tokenizer::find_file(recipe.model))
    needs.components.push_back({"tokenizer", tokenizer_bytes(*file, data)});
  if (data != nullptr && data->summary && data->summary->scratch.bytes > 0 && recipe.output &&
      keeps_files_in_memory(*recipe.output))
    needs.components.push_back(
        {"rows to shuffle (run folder in memory, tmpfs)", data->summary->scratch.bytes});
  const int64_t long_rows = data != nullptr && data->train ? add_rows(*data, needs) : 0;
  if (const SequenceShape shape = train_shape(experiment); shape.longest_alike)
    needs.components.push_back({"lengths of rows that begin alike",
                                LongestAlike::planned_bytes(experiment.effective_batch * shape.documents,
                                                            experiment.effective_batch * shape.tokens)});
  if (data != nullptr && data->train && visits_in_parts(*data->train))
    needs.components.push_back(
        {"targets that were seen", SeenTargets::planned_bytes(experiment.task, experiment.model.vocab)});
  if (data != nullptr && data->eval)
    if (const int64_t bytes = EvaluatedRows::planned_bytes(experiment.task, data->eval->rows.size());
        bytes > 0)
      needs.components.push_back({"evaluation answers", bytes});
  add_ranks(recipe, experiment, data, needs);
  needs.components.push_back(staging_with_rows(experiment, long_rows));
  const bool named = recipe.is_of_card() && resolved.card;
  if (recipe.device == DeviceChoice::emulated || named)
    needs.components.push_back({"beside the card", card_bytes(recipe, experiment)});
  if (named) needs.components.push_back(cuda_on_host(*resolved.card, recipe.device == DeviceChoice::cuda));
  // Stacks at their full size, as VmData counts them, and heap arenas of the threads.
  needs.extra_data_bytes += cpu.threads * (thread_stack_bytes() + 2 * kMiB) + 8 * kMiB;
  return needs;
}

Target answering_target(const InferenceDevice& device, const Experiment& experiment,
                        std::function<std::vector<Component>(const Plan&)> more) {
  Target target;
  target.device = describe(device, experiment.precision.compute);
  target.own_memory = device.device == DeviceChoice::cuda;
  target.host.components = {threads_and_libraries(device.cpu),
                            staging_of_loading(quantising_bytes(experiment))};
  if (target.own_memory) target.host.components.push_back(cuda_on_host(card_of(device), true));
  target.host_of = [is_card = device.is_card(), more = std::move(more)](const Plan& plan) {
    std::vector<Component> components = more ? more(plan) : std::vector<Component>{};
    if (is_card) components.push_back(beside_the_card(plan.layout));
    return components;
  };
  return target;
}

}  // namespace plimsoll
