// Ops other than matrix products are measured where they run: in training programs of small models, op by op.
// So an op that gets a new kernel, and any op of these programs that is added, is measured without a line
// here. The gated delta rule, which none of these models has, is measured in programs of its own.
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/error.h"
#include "base/format.h"
#include "calibrate/measure.h"
#include "cpu/describe.h"
#include "graph/op_kind.h"
#include "layout/program_layout.h"
#include "ops/rule.h"
#include "ops/step_values.h"
#include "passes/train.h"
#include "plan/program/time_model.h"
#include "runtime/device.h"

namespace plimsoll {
namespace {

struct Sample {
  int64_t hidden, head_dim, length, micro_batch;
  DType dtype;
  bool lora;
  bool bf16_states = false;  // and gradients
};

// Full fine-tuning for streams and the optimizer at sizes from cache to memory, with the two kinds of states;
// adapters with dropout for attention over lengths, at the two common head sizes.
std::vector<Sample> samples(bool quick) {
  std::vector<Sample> list;
  for (const DType t : {DType::f32, DType::bf16}) {
    list.push_back({64, 16, 16, 1, t, false});
    list.push_back({512, 64, 256, 1, t, false});
    if (quick) {
      for (const int64_t length : {128, 1024}) list.push_back({512, 64, length, 1, t, true});
      continue;
    }
    list.push_back({256, 64, 64, 1, t, false});
    list.push_back({1024, 64, 512, 1, t, false});
    list.push_back({1024, 64, 1024, 2, t, false});
    for (const int64_t head : {64, 128})
      for (const int64_t length : {128, 256, 512, 1024, 2048, 4096})
        list.push_back({512, head, length, std::max<int64_t>(1, 512 / length), t, true});
  }
  list.push_back({64, 16, 16, 1, DType::bf16, false, true});
  list.push_back({512, 64, 256, 1, DType::bf16, false, true});
  if (!quick) list.push_back({1024, 64, 512, 1, DType::bf16, false, true});
  return list;
}

Experiment experiment_of(const Sample& sample) {
  Experiment experiment;
  experiment.model = parse_model_spec({{"model_type", "qwen2"},
                                       {"hidden_size", sample.hidden},
                                       {"intermediate_size", sample.hidden * 4},
                                       {"num_hidden_layers", 1},
                                       {"num_attention_heads", sample.hidden / sample.head_dim},
                                       {"num_key_value_heads", sample.hidden / sample.head_dim / 2},
                                       {"vocab_size", sample.hidden * 16}},
                                      "calibration model");
  experiment.lora = sample.lora;
  experiment.lora_options.dropout = 0.1;
  experiment.precision.compute = sample.dtype;
  experiment.precision.stochastic = sample.dtype == DType::bf16;
  if (sample.bf16_states) experiment.precision.gradients = experiment.precision.states = DType::bf16;
  experiment.max_length = sample.length;
  experiment.effective_batch = sample.micro_batch;
  return experiment;
}

Variant variant_of(const Sample& sample) {
  Variant variant;
  variant.micro_batch = sample.micro_batch;
  return variant;
}

// The gated delta rule and its gradient over one text, with heads as Qwen3.5 has them.
Graph delta_rule_program(int64_t tokens, DType dtype, const DeviceDescription& device) {
  constexpr int64_t kHeads = 4, kKeyHeads = 2, kDim = 128;
  const auto rows = [&](DType type, int64_t width) {
    return formatted("{}[{},{}]", to_string(type), tokens, width);
  };
  const std::string keys = rows(dtype, kKeyHeads * kDim), values = rows(dtype, kHeads * kDim);
  const std::string gates = rows(DType::f32, kHeads);
  const std::string attributes = formatted("{{eps=1e-06, heads={}, key_heads={}}}", kHeads, kKeyHeads);
  std::string text = "graph delta_rule\ntensor step f64[16] input\ntensor seq_starts i32[2] input\n";
  const auto input = [&](const char* name, const std::string& type) {
    text += formatted("tensor {} {} input\n", name, type);
  };
  for (const char* const name : {"q", "k"}) input(name, keys);
  for (const char* const name : {"v", "d_o"}) input(name, values);
  for (const char* const name : {"g", "beta"}) input(name, gates);
  text +=
      formatted("o {} = delta_rule(q, k, v, g, beta, seq_starts, step) {} @a forward\n", values, attributes);
  text += formatted(
      "d_q {}, d_k {}, d_v {}, d_g {}, d_beta {} = delta_rule_grad(q, k, v, g, beta, d_o, seq_starts, step) {} "
      "@a backward\n",
      keys, keys, values, gates, gates, attributes);
  return assign_scratch(parse_graph(text), device);
}

// Programs in an arena, run op by op on texts of `length` tokens.
class MeasuredPrograms {
 public:
  struct Texts {
    int64_t length, count, vocab;
  };

  MeasuredPrograms(const Texts& texts, std::vector<Graph> programs, const CpuSettings& cpu)
      : texts_(texts),
        programs_(std::move(programs)),
        layout_(lay_out(programs_)),
        device_(cpu),
        memory_(device_.map(layout_.arena_bytes())) {}

  // The least seconds of each op of program `p` in `times` runs.
  std::vector<double> op_seconds(size_t p, int times) {
    const Graph& graph = programs_[p];
    const auto address = [&](TensorId id) {
      return memory_->data() + layout_.programs[p].rows[static_cast<size_t>(id)].offset;
    };
    std::vector<BoundCall> calls;
    for (const Op& op : graph.ops()) calls.push_back(device_.bind(graph, op, address));
    std::vector<double> least(calls.size(), std::numeric_limits<double>::max());
    for (int run = 0; run <= times; ++run) {  // the first one warms up
      fill_inputs(p);
      for (size_t i = 0; i < calls.size(); ++i) {
        const double seconds = seconds_of(calls[i]);
        if (run > 0) least[i] = std::min(least[i], seconds);
      }
    }
    return least;
  }

  [[nodiscard]] const std::vector<Graph>& programs() const { return programs_; }

 private:
  template <class T>
  std::span<T> tensor(size_t p, std::string_view name) {
    const TensorId id = programs_[p].find(name);
    if (id == kNoTensor) return {};
    const TableRow& row = layout_.programs[p].rows[static_cast<size_t>(id)];
    return {reinterpret_cast<T*>(memory_->data() + row.offset), static_cast<size_t>(row.bytes) / sizeof(T)};
  }

  // Full sequences of all token ids in turn; inputs share bytes with what comes later in a program.
  void fill_inputs(size_t p) {
    const auto length = static_cast<int32_t>(texts_.length);
    const auto vocab = static_cast<int32_t>(texts_.vocab);
    const auto ids = tensor<int32_t>(p, "input_ids");
    const auto labels = tensor<int32_t>(p, "labels");
    const auto positions = tensor<int32_t>(p, "positions");
    const auto samples = tensor<int32_t>(p, "samples");
    for (size_t t = 0; t < ids.size(); ++t) {
      const auto token = static_cast<int32_t>(t);
      ids[t] = labels[t] = token % vocab;
      positions[t] = token % length;
      samples[t] = token / length;
    }
    const auto starts = tensor<int32_t>(p, "seq_starts");
    for (size_t s = 0; s < starts.size(); ++s) starts[s] = static_cast<int32_t>(s) * length;
    const auto frequencies = tensor<float>(p, "inv_freq");
    std::fill(frequencies.begin(), frequencies.end(), 1.0F);
    const auto step = tensor<double>(p, kStepTensor);
    const auto set = [&](StepValue which, double value) { step[static_cast<size_t>(which)] = value; };
    std::fill(step.begin(), step.end(), 0.0);
    set(StepValue::optimizer_step, 1);
    set(StepValue::learning_rate, 1e-3);
    set(StepValue::loss_scale, 1);
    set(StepValue::live_tokens, static_cast<double>(texts_.length * texts_.count));
    set(StepValue::live_sequences, static_cast<double>(texts_.count));
  }

  Texts texts_;
  std::vector<Graph> programs_;
  ArenaLayout layout_;
  CpuDevice device_;
  std::unique_ptr<DeviceMemory> memory_;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Rates by op, type and head size, then by where on the curve they lie.
class Curves {
 public:
  void add(const Op& op, const OpWork& work, double seconds) {
    // The products' table is not exact: what is left of the time for the rest is at least a tenth.
    const double rest = std::max(seconds - work.products, seconds / 10);
    points_[{std::string(to_string(op.kind)), work.dtype, work.head_dim}][work.at].push_back(work.work /
                                                                                             rest);
  }

  [[nodiscard]] std::vector<RateCurve> medians() const {
    std::vector<RateCurve> curves;
    for (const auto& [key, points] : points_) {
      const auto& [op, dtype, head_dim] = key;
      curves.push_back({op, dtype, head_dim, {}});
      for (const auto& [at, rates] : points) curves.back().points.push_back({at, median(rates)});
    }
    return curves;
  }

 private:
  std::map<std::tuple<std::string, DType, int64_t>, std::map<double, std::vector<double>>> points_;
};

}  // namespace

void measure_programs(const CalibrateOptions& options, DeviceRates& rates, const PartProgress& progress) {
  const std::vector<Sample> list = samples(options.quick);
  const DeviceDescription device = describe_cpu(options.cpu.isa, options.cpu.threads);
  Curves curves;
  double smallest = 1e-4;
  const auto measure = [&](MeasuredPrograms measured) {
    for (size_t p = 0; p < measured.programs().size(); ++p) {
      const Graph& graph = measured.programs()[p];
      const std::vector<double> seconds = measured.op_seconds(p, options.quick ? 3 : 5);
      for (size_t i = 0; i < seconds.size(); ++i) {
        smallest = std::min(smallest, std::max(seconds[i], 1e-7));
        OpWork work = work_of(graph, graph.ops()[i], rates);
        const Work whole = work_of(graph, graph.ops()[i]);
        if (whole.all_by_curve) {  // of which there is none yet
          work.work = whole.amount;
          work.products = 0;
        }
        if (work.work > 0 && seconds[i] > 0) curves.add(graph.ops()[i], work, seconds[i]);
      }
    }
  };
  for (size_t s = 0; s < list.size(); ++s) {
    progress(static_cast<double>(s) / static_cast<double>(list.size()));
    const Experiment experiment = experiment_of(list[s]);
    measure({{list[s].length, list[s].micro_batch, experiment.model.vocab},
             build_programs(experiment, variant_of(list[s]), device),
             options.cpu});
  }
  for (const int64_t tokens : options.quick ? std::vector<int64_t>{512} : std::vector<int64_t>{64, 512, 4096})
    for (const DType dtype : {DType::f32, DType::bf16})
      measure({{tokens, 1, 1}, {delta_rule_program(tokens, dtype, device)}, options.cpu});
  rates.ops = curves.medians();
  rates.op_overhead = smallest;
}

}  // namespace plimsoll
