#include "plan/report/explain.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "base/units.h"

namespace plimsoll {
namespace {

// By how a name begins: some end in figures.
std::string meaning_of(const std::string& component) {
  static const std::map<std::string, const char*, std::greater<>> kMeanings = {
      {"weights (frozen)", "the model, only read"},
      {"weights (nf4)", "the layers' frozen weights in 4 bits, with their scales"},
      {"weights (int8)", "the layers' frozen weights in 8 bits, with a scale for each row"},
      {"starts of adapters", "the first values of adapters, which PiSSA and OLoRA make from the weights"},
      {"weights (trained)", "what the optimizer changes, as the products read it"},
      {"master weights", "f32 copies of the trained weights, which the optimizer works on"},
      {"gradients", "of each trained weight, summed over the effective batch"},
      {"optimizer states", "what the optimizer remembers of each trained weight"},
      {"inputs and metrics", "token ids, labels and positions of a micro-batch; sums for the log"},
      {"activations kept", "written in the forward pass, read in the backward pass"},
      {"working tensors at the peak", "what the op at the peak reads and writes besides"},
      {"library scratch", "workspace of the op at the peak"},
      {"gaps of the layout", "bytes that the layout cannot use"},
      {"program", "this program and its libraries, at most"},
      {"threads and libraries", "thread pool, and code that the first step brings in"},
      {"tokenizer", "vocabulary and merges"},
      {"rows", "rows of the training files held at a time"},
      {"evaluation rows", "rows of the evaluation files held at a time"},
      {"batches", "effective batches prepared ahead"},
      {"evaluation batches", "micro-batches of evaluation prepared ahead"},
      {"staging", "through which weights are read"},
      {"programs", "ops and tables of the planned programs"},
      {"offloaded to the host", "tensors that are kept in host memory"},
      {"offload folder in memory", "offloaded tensors, as the folder is in memory (tmpfs)"},
      {"longest row", "the longest row, while it is read"},
      {"longest evaluation row", "one row as long as any, while it is read"},
      {"lengths of rows that begin alike", "to find what a batch's rows share"},
      {"evaluation answers", "what was answered to the evaluation rows, until it is counted"},
      {"places of kept rows", "where each row's outputs of the frozen layers are in the cache"},
      {"beside the card", "inputs on their way to the card, and staging of what is loaded"},
      {"CUDA", "the driver's libraries and cuBLASLt, of the host's memory"},
      {"driver", "outside the arena: what the driver keeps of the card's memory"},
      {"context", "outside the arena: what each process has on the card"},
      {"code and libraries", "outside the arena: kernels of this program and of cuBLASLt"},
      {"graphs", "outside the arena: calls that were captured, to be launched as one"}};
  const auto found = std::ranges::find_if(
      kMeanings, [&](const auto& meaning) { return component.starts_with(meaning.first); });
  return found == kMeanings.end() ? "" : found->second;
}

// The arena, and memory outside it.
std::vector<Component> all_of_device(const Plan& plan) {
  std::vector<Component> components = device_components(plan);
  for (const OutsidePart& part : plan.outside()) components.push_back({part.name, part.counted()});
  return components;
}

int64_t bytes_of(const std::vector<Component>& components, const std::string& name) {
  for (const Component& component : components)
    if (component.name == name) return component.bytes;
  return 0;
}

std::vector<ExplainedComponent> explained(const std::vector<Component>& now,
                                          const std::vector<std::vector<Component>>& then) {
  std::vector<ExplainedComponent> list;
  for (const Component& component : now) {
    ExplainedComponent one{component, meaning_of(component.name), {}};
    for (const std::vector<Component>& components : then) {
      const auto bytes = static_cast<double>(bytes_of(components, component.name));
      one.growth.push_back(component.bytes == 0 ? 1.0 : bytes / static_cast<double>(component.bytes));
    }
    list.push_back(std::move(one));
  }
  return list;
}

// Lists what is on the device at the peak of the largest program; a storage that several tensors share counts
// once.
std::vector<const TableRow*> alive_at_peak(const Plan& plan) {
  std::vector<const TableRow*> rows;
  const auto& programs = plan.layout.programs;
  const auto largest = std::max_element(programs.begin(), programs.end(), [](const auto& a, const auto& b) {
    return a.transient_bytes < b.transient_bytes;
  });
  std::set<int64_t> counted;
  for (const TableRow& row : largest->rows) {
    if (is_persistent(row.role) || row.space != Space::device) continue;
    const bool alive = row.first <= largest->peak_op && largest->peak_op <= row.last;
    if (alive && counted.insert(row.offset).second) rows.push_back(&row);
  }
  return rows;
}

std::vector<const TableRow*> persistent_on_device(const Plan& plan) {
  std::vector<const TableRow*> rows;
  for (const TableRow& row : plan.layout.persistent)
    if (row.space == Space::device) rows.push_back(&row);
  return rows;
}

void add(LayerGroup& group, const TableRow& row) {
  const int64_t bytes = round_up(row.bytes, kArenaAlignment);
  switch (row.role) {
    case Role::frozen_weight:
    case Role::trainable_weight:
    case Role::master:
      group.weights += bytes;
      return;
    case Role::gradient:
    case Role::optimizer_state:
      group.training += bytes;
      return;
    default:
      group.activations += bytes;
  }
}

bool same_bytes(const LayerGroup& a, const LayerGroup& b) {
  return a.weights == b.weights && a.training == b.training && a.activations == b.activations;
}

std::vector<LayerGroup> layer_groups(const Plan& plan, const std::vector<const TableRow*>& transient) {
  const Graph& graph = plan.programs.front();
  const size_t blocks = graph.blocks().size();
  std::vector<LayerGroup> each(blocks + 1);  // the last one: outside
  const auto count = [&](const TableRow* row) {
    add(each[row->block == kNoBlock ? blocks : static_cast<size_t>(row->block)], *row);
  };
  for (const TableRow* row : persistent_on_device(plan)) count(row);
  for (const TableRow* row : transient) count(row);
  std::vector<LayerGroup> groups;
  for (const Stack& stack : graph.stacks()) {
    for (int32_t i = 0; i < stack.count; ++i) {
      const auto block = static_cast<size_t>(stack.first + i);
      if (i == 0 || !same_bytes(groups.back(), each[block])) {
        groups.push_back(each[block]);
        groups.back().kind = graph.blocks()[block].kind;
        groups.back().first = i;
      }
      groups.back().last = i;
    }
  }
  groups.push_back(each[blocks]);
  groups.back().last = -1;
  return groups;
}

// "model.layers.3" -> "layers.*"; with the whole path where there are several stacks.
std::string name_of_all(const Graph& graph, const BlockInfo& block) {
  const size_t number = block.name.rfind('.');
  if (number == std::string::npos) return block.kind + ".*";
  const size_t path = graph.stacks().size() > 1 ? std::string::npos : block.name.rfind('.', number - 1);
  const size_t begin = path == std::string::npos ? 0 : path + 1;
  return block.name.substr(begin, number - begin) + ".*";
}

// "d_model.layers.3.mlp.act" -> "gradient of layers.*.mlp.act"
std::string kind_name(const TableRow& row, const Graph& graph) {
  if (row.role == Role::scratch) return "scratch";
  if (row.block == kNoBlock) return row.name;
  const BlockInfo& block = graph.blocks()[static_cast<size_t>(row.block)];
  const size_t at = row.name.find(block.name);
  if (at == std::string::npos) return row.name;
  return (at > 0 ? "gradient of " : "") + name_of_all(graph, block) + row.name.substr(at + block.name.size());
}

std::vector<TensorKind> tensor_kinds(const std::vector<const TableRow*>& transient, const Graph& graph) {
  std::map<std::string, TensorKind> by_name;
  for (const TableRow* row : transient) {
    const std::string name = kind_name(*row, graph);
    TensorKind& kind = by_name[name];
    kind.name = name;
    ++kind.count;
    kind.bytes += round_up(row->bytes, kArenaAlignment);
  }
  std::vector<TensorKind> kinds;
  for (auto& [name, kind] : by_name) kinds.push_back(kind);
  std::stable_sort(kinds.begin(), kinds.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return kinds;
}

}  // namespace

static void double_layers(Doubled& layers) {
  ModelSpec& model = layers.request.workload.experiment.model;
  auto& points = layers.variant.recompute.layers;
  const auto windows = std::exchange(model.windows, {});
  const auto chosen = std::exchange(points, {});
  std::vector<int64_t> depths = model.stacks();
  std::ptrdiff_t first = 0;
  const auto twice = [&first](const auto& from, std::ptrdiff_t depth, auto& to) {
    for (int i = 0; i < 2 && !from.empty(); ++i)
      to.insert(to.end(), from.begin() + first, from.begin() + first + depth);
  };
  std::vector<int64_t> twice_windows;
  for (int64_t& depth : depths) {
    twice(windows, depth, twice_windows);
    twice(chosen, depth, points);
    first += depth;
    depth *= 2;
  }
  model = model.with_stacks(depths);
  model.windows = twice_windows;
}

std::vector<Doubled> doubled_dimensions(const Plan& plan) {
  std::vector<Doubled> list;
  const auto again = [&](const char* what) -> Doubled& {
    return list.emplace_back(Doubled{what, plan.request, plan.variant});
  };
  Doubled& length = again("length");
  Experiment& longer = length.request.workload.experiment;
  for (int64_t* tokens :
       {&longer.max_length, &longer.longest_sample, &longer.longest_shared, &longer.common_begin,
        &length.variant.micro_tokens, &length.variant.eval_micro_tokens})
    *tokens *= 2;
  Variant& micro = again("micro-batch").variant;
  for (int64_t* room :
       {&micro.micro_batch, &micro.micro_tokens, &micro.eval_micro_batch, &micro.eval_micro_tokens})
    *room *= 2;
  if (plan.request.workload.experiment.lora) {
    LoraOptions& lora = again("rank").request.workload.experiment.lora_options;
    lora.r *= 2;
    for (auto& [pattern, r] : lora.rank_pattern) r *= 2;
  }
  double_layers(again("layers"));
  again("vocab").request.workload.experiment.model.vocab *= 2;
  return list;
}

Explanation explain(const Plan& plan, const std::vector<Doubled>& doubled) {
  Explanation result;
  std::vector<std::vector<Component>> device, host;
  for (const Doubled& one : doubled) {
    const Plan then = plan_variant(one.request, one.variant);
    result.doubled.push_back(one.what);
    device.push_back(all_of_device(then));
    host.push_back(then.host_components());
  }
  result.device = explained(all_of_device(plan), device);
  result.host = explained(plan.host_components(), host);
  const auto transient = alive_at_peak(plan);
  result.layers = layer_groups(plan, transient);
  result.kinds = tensor_kinds(transient, plan.programs.front());
  const Experiment& experiment = plan.request.workload.experiment;
  if (experiment.model.linear_attention) return result;  // it has none
  const BatchShape shape =
      experiment.batch_shape(experiment.train_capacity(plan.variant), experiment.documents);
  result.scores_bytes =
      shape.tokens * experiment.model.heads * experiment.max_length * size_of(experiment.precision.compute);
  return result;
}

}  // namespace plimsoll
