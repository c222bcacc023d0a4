// The batch of a step: what a device has at a time, how often gradients are accumulated, and how many
// processes there are. batch.effective is their product.
#include <algorithm>
#include <array>

#include "base/format.h"
#include "base/units.h"
#include "recipe/translate/combine.h"
#include "recipe/translate/combine_parts.h"
#include "recipe/translate/foreign_value.h"

namespace plimsoll {
namespace {

constexpr int64_t kMostSequences = 1'000'000;  // of batch.effective

// A later layer that gives the batch, or what is missing of it, settles it.
void refuse_batch(Layer& layer, const Said& said, const std::string& message) {
  layer.refuse_until_later(said, message, "batch.effective");
}

// The micro-batch that a tool has where its recipe gives none; 0 where it must be given.
int64_t default_micro(std::optional<Tool> tool) {
  if (tool == Tool::axolotl) return 1;
  return tool == Tool::llama_factory || tool == Tool::trl ? 8 : 0;
}

// A number that a recipe or its DeepSpeed file may state; 0 where neither does.
struct Count {
  int64_t value = 0;
  std::vector<const Said*> from;
};

// Returns true if every one of them is a number from 1 on.
bool check_counts(Layer& layer, const std::vector<const Said*>& all) {
  for (const Said* said : all) {
    const int64_t value = read_foreign_whole(said->value).value_or(0);
    if (value >= 1 && value <= kMostSequences) continue;
    refuse_batch(layer, *said, "expected a whole number from 1 to 1,000,000");
    return false;
  }
  return true;
}

// One number that two places give; nothing where they differ.
std::optional<Count> one_of(Layer& layer, const Said* recipe, const Said* file) {
  Count count;
  count.from = present({recipe, file});
  if (!check_counts(layer, count.from)) return std::nullopt;
  for (const Said* said : count.from) {
    const int64_t value = read_foreign_whole(said->value).value_or(0);
    if (count.value != 0 && value != count.value) {
      refuse_batch(layer, *file,
                   formatted("'{}' contradicts '{}'; keep one of them, or say auto in the DeepSpeed file",
                             file->as_written, recipe->as_written));
      return std::nullopt;
    }
    count.value = value;
  }
  return count;
}

// A key's number, 1 where it is absent. Products of three such numbers stay within 64 bits.
int64_t number_of(const Said* said) {
  const int64_t value = said == nullptr ? 1 : read_foreign_whole(said->value).value_or(1);
  return std::clamp<int64_t>(value, 0, kMostSequences + 1);
}

// Processes of several groups; beyond what a batch can have it does not matter how many.
int64_t processes_in_all(int64_t groups, int64_t each) { return std::min(groups * each, kMostSequences + 1); }

std::optional<Count> without_splits(Layer& layer, Count count) {
  for (const std::string_view part : kSplits) {
    const Said* split = layer.part(part);
    if (split == nullptr) continue;
    const int64_t parts = read_foreign_whole(split->value).value_or(0);
    if (parts < 2 && layer.says({part}))
      layer.ignore(*split, "one device: nothing is launched, sharded or exchanged");
    if (parts < 2) continue;
    if (count.value == 0) {
      if (layer.says({part}))
        layer.ignore(*split, "its devices are one process of the batch, whose number is not said");
      continue;
    }
    layer.withdraw(*split);
    if (count.value % parts != 0) {
      refuse_batch(layer, *split, formatted("{} processes cannot be divided by {}", count.value, parts));
      return std::nullopt;
    }
    count.value /= parts;
    count.from.push_back(split);
  }
  return count;
}

// Processes as launchers count them: in all (torch, accelerate), or of each node (torchrun).
std::optional<Count> read_processes(Layer& layer) {
  const Said* all = layer.part("@processes");
  const Said* each = layer.part("@node_processes");
  const Said* nodes = layer.part("@nodes");
  const Said* cards = layer.part("@cards");
  if (!check_counts(layer, present({all, each, nodes, cards}))) return std::nullopt;
  Count count;
  if (each != nullptr) {
    count = {processes_in_all(number_of(nodes), number_of(each)), present({each, nodes})};
  } else if (all != nullptr) {
    count = {number_of(all), {all}};
  } else if (cards != nullptr) {
    if (number_of(nodes) > 1) {
      refuse_batch(layer, *cards,
                   formatted("of each node, or of all {}? Say world_size, the number of processes in all",
                             number_of(nodes)));
      return std::nullopt;
    }
    return without_splits(layer, {number_of(cards), {cards}});
  }
  if (all != nullptr && number_of(all) != count.value) {
    refuse_batch(layer, *all,
                 formatted("{} x {} = {} processes, '{}' says {}", number_of(each), number_of(nodes),
                           count.value, all->as_written, number_of(all)));
    return std::nullopt;
  }
  if (cards != nullptr && number_of(cards) != count.value &&
      number_of(cards) * number_of(nodes) != count.value) {
    refuse_batch(layer, *cards,
                 formatted("contradicts '{}'; keep one of them", count.from.front()->as_written));
    return std::nullopt;
  }
  return without_splits(layer, count);
}

// Workers of Ray (LLaMA-Factory reads from its environment whether to use it), or axolotl's ranks that see
// other rows.
Count counted_otherwise(Layer& layer) {
  const Said* workers = layer.part("@ray_workers");
  const bool by_ray = layer.tool() == Tool::llama_factory || is_true(layer.part("@ray"));
  if (by_ray && number_of(workers) > 1) return {number_of(workers), present({workers, layer.part("@ray")})};
  const Said* shards = layer.part("@shards");
  const Said* replicas = layer.part("@replicas");
  // By default, and with -1, torchtune divides among all devices that are left.
  const bool takes_rest = layer.tool() == Tool::torchtune &&
                          (shards == nullptr || read_foreign_whole(shards->value).value_or(-1) < 0);
  const int64_t ranks = processes_in_all(number_of(replicas), number_of(shards));
  if (ranks > 1 && !takes_rest) return {ranks, present({shards, replicas})};
  for (const char* part : {"@ray_workers", "@ray", "@shards", "@replicas"})
    if (layer.says({part}))
      layer.ignore(*layer.part(part), takes_rest ? "all processes count, however they divide the weights"
                                                 : "one device: nothing is launched, sharded or exchanged");
  return {};
}

// The number of processes, by whichever key gives it.
std::optional<Count> processes_of(Layer& layer) {
  const std::optional<Count> launched = read_processes(layer);
  const Count counted = counted_otherwise(layer);
  if (!launched || counted.value == 0) return launched;
  if (launched->value == 0 || launched->value == counted.value) return counted;
  refuse_batch(layer, *counted.from.front(),
               formatted("says {} processes, '{}' {}", counted.value, launched->from.front()->as_written,
                         launched->value));
  return std::nullopt;
}

struct Batch {
  Count micro, accumulation, processes, total;
};

// "16 x 8 x 3", with a letter where a number is not given.
std::string factors(const Batch& batch) {
  const auto text = [](const Count& count, const char* unknown) {
    return count.value > 0 ? std::to_string(count.value) : std::string(unknown);
  };
  return formatted("{} x {} x {}", text(batch.micro, "M"), text(batch.accumulation, "A"),
                   text(batch.processes, "N"));
}

// axolotl's batch_size is what one process has of a step (utils/config/__init__.py: normalize_config).
bool take_process_batch(Layer& layer, Batch& batch) {
  const Said* said = layer.part("@process_batch");
  if (said == nullptr) return true;
  if (!check_counts(layer, {said})) return false;
  const int64_t rows = read_foreign_whole(said->value).value_or(0);
  const int64_t micro = std::max<int64_t>(batch.micro.value, 1);
  const int64_t times = rows / micro;
  const bool is_whole = rows % micro == 0;
  if (!is_whole || (batch.accumulation.value > 0 && batch.accumulation.value != times)) {
    refuse_batch(layer, *said,
                 formatted("{} is not {}, which '{}' says of one process",
                           factors({batch.micro, batch.accumulation, {1, {}}, {}}), rows, said->as_written));
    return false;
  }
  batch.accumulation.value = times;
  batch.accumulation.from.push_back(said);
  return true;
}

// The key alone, outside of DeepSpeed, is of one device in some scripts and of all in others.
bool knows_total(Layer& layer) {
  const Said* total = layer.part("@deepspeed_total");
  if (total == nullptr || layer.part("@deepspeed_micro") != nullptr || layer.part("@deepspeed") != nullptr)
    return true;
  refuse_batch(layer, *total,
               "of one device, or of all? Say batch_size_per_gpu, or batch.effective: sequences of a step");
  return false;
}

std::optional<Batch> read_batch(Layer& layer) {
  if (!knows_total(layer)) return std::nullopt;
  const auto micro = one_of(layer, layer.part("@micro"), layer.part("@deepspeed_micro"));
  const auto times = one_of(layer, layer.part("@accumulation"), layer.part("@deepspeed_accumulation"));
  const auto total = one_of(layer, layer.part("@total_batch"), layer.part("@deepspeed_total"));
  const auto processes = processes_of(layer);
  if (!micro || !times || !total || !processes) return std::nullopt;
  Batch batch = {*micro, *times, *processes, *total};
  if (!take_process_batch(layer, batch)) return std::nullopt;
  return batch;
}

// The product; 0 and a refusal for numbers that contradict each other.
int64_t product_of(Layer& layer, const Batch& batch) {
  const auto least = [](const Count& count) { return std::max<int64_t>(count.value, 1); };
  const int64_t known = least(batch.micro) * least(batch.accumulation) * least(batch.processes);
  if (batch.total.value == 0) return known;
  const bool is_whole = batch.micro.value > 0 && batch.accumulation.value > 0 && batch.processes.value > 0;
  if (is_whole ? known == batch.total.value : batch.total.value % known == 0) return batch.total.value;
  const Said& total = *batch.total.from.front();
  refuse_batch(
      layer, total,
      formatted("{}{}, {} says {} (batch of a device x accumulation x processes)", factors(batch),
                is_whole ? " = " + std::to_string(known) : " cannot be that", total.key, batch.total.value));
  return 0;
}

// Records what earlier versions read: the recipe's own numbers, and one process.
void remember_one_process(Layer& layer) {
  const Said* micro = layer.part("@micro");
  const Said* times = layer.part("@accumulation");
  const auto value = [](const Said* said, int64_t otherwise) {
    return said == nullptr ? otherwise : read_foreign_whole(said->value).value_or(otherwise);
  };
  if (const int64_t rows = value(micro, default_micro(layer.tool())); rows > 0)
    layer.read_once_as("batch.effective", std::to_string(rows * value(times, 1)));
}

void emit_batch(Layer& layer, Batch batch, bool is_automatic) {
  const bool is_stated = layer.given("batch.effective") != nullptr;  // in our words
  const Said* micro = batch.micro.from.empty() ? nullptr : batch.micro.from.front();
  if (batch.total.value == 0) {
    if (batch.micro.value == 0 && layer.part("@process_batch") == nullptr)
      batch.micro.value = default_micro(layer.tool());
    if (batch.accumulation.value == 0) batch.accumulation.value = 1;
  }
  std::vector<const Said*> from;
  for (const Count* count : {&batch.micro, &batch.accumulation, &batch.processes, &batch.total})
    from.insert(from.end(), count->from.begin(), count->from.end());
  if (from.empty()) return;
  if (batch.micro.value == 0 && batch.total.value == 0 && layer.part("@process_batch") == nullptr) {
    if (batch.accumulation.from.empty()) {
      for (const Said* said : batch.processes.from)
        layer.ignore(*said,
                     "no batch of a device is stated beside it: batch.effective is that of all processes");
      return;
    }
    return refuse_batch(layer, *batch.accumulation.from.front(),
                        "needs a micro-batch beside it; here batch.effective says how many "
                        "sequences make a step, and the planner divides them");
  }
  const int64_t effective = product_of(layer, batch);
  if (effective == 0) return;
  if (effective > kMostSequences)
    return refuse_batch(layer, *from.front(), factors(batch) + " is more than 1,000,000 sequences of a step");
  if (micro != nullptr && !is_automatic) layer.emit("batch.micro", micro->value, {micro});
  layer.emit("batch.effective", std::to_string(effective), from);
  if (is_stated || batch.processes.value > 0 || batch.total.value > 0) return;
  const std::string one = format_count(effective);
  layer.note(
      "batch",
      formatted("batch.effective is {}, that of one process; of N processes it is N x {}: --set world_size=N",
                one, one));
}

// The batch of evaluations; 0 stands where a recipe has none.
void combine_eval_micro(Layer& layer) {
  if (!layer.says({"@eval_micro"})) return;
  const Said* said = layer.part("@eval_micro");
  if (is_word(said, "0"))
    layer.ignore(*said, "no batch at all; the planner chooses that of evaluations (eval.micro)");
  else
    layer.emit("eval.micro", said->value, {said});
}

}  // namespace

void combine_batch(Layer& layer) {
  combine_eval_micro(layer);
  const Said* automatic = layer.part("@auto_micro");
  if (layer.given("batch.effective") != nullptr) layer.forget_note("batch");  // given in our words
  if (!layer.says({"@micro", "@accumulation", "@auto_micro", "@processes", "@node_processes", "@nodes",
                   "@cards", "@process_batch", "@total_batch", "@deepspeed_micro", "@deepspeed_accumulation",
                   "@deepspeed_total", "@ray_workers", "@ray", "@shards", "@replicas"}) &&
      !layer.says({kSplits[0], kSplits[1], kSplits[2], kSplits[3]}))
    return;
  if (is_true(automatic))
    layer.emit("batch.micro", "auto", {automatic});
  else if (automatic != nullptr && layer.says({"@auto_micro"}))
    layer.ignore(*automatic, "off, as here", true);
  const auto batch = read_batch(layer);
  if (!batch) return;
  layer.forget_note("batch");
  remember_one_process(layer);
  emit_batch(layer, *batch, is_true(automatic));
}

}  // namespace plimsoll
