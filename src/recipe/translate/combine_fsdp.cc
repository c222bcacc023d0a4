// FSDP, as transformers, axolotl, torchtune and accelerate's files write it.
#include <algorithm>
#include <array>
#include <filesystem>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "recipe/translate/combine_parts.h"
#include "recipe/translate/combine_shard.h"
#include "recipe/translate/foreign_value.h"

namespace plimsoll {
namespace {

// torch.distributed.fsdp.ShardingStrategy, which files also count from 1. Hybrid ones divide among the devices of a
// machine and are whole in each machine; here all devices divide the same, and compute the same numbers.
struct Strategy {
  std::string_view name;
  int64_t stage;
};
constexpr std::array kStrategies = {Strategy{"full_shard", 3}, Strategy{"shard_grad_op", 2},
                                    Strategy{"no_shard", 0}, Strategy{"hybrid_shard", 3},
                                    Strategy{"hybrid_shard_zero2", 2}};

const Strategy* find_strategy(const Node& node) {
  if (node.kind != Node::Kind::scalar) return nullptr;
  if (const auto number = read_foreign_whole(node))
    return *number >= 1 && *number <= static_cast<int64_t>(kStrategies.size())
               ? &kStrategies[static_cast<size_t>(*number) - 1]
               : nullptr;
  const std::string word = in_small_letters(node.text);
  const auto at =
      std::find_if(kStrategies.begin(), kStrategies.end(), [&](const Strategy& s) { return s.name == word; });
  return at == kStrategies.end() ? nullptr : &*at;
}

class Reader {
 public:
  explicit Reader(Layer& layer) : layer_(layer) {}

  // Takes a strategy's name or number, or FSDP2's flag. Where two keys have one the last decides.
  void take_strategy(const Said& said, const Node& node) {
    if (const auto flag = read_foreign_flag(node); flag && !read_foreign_whole(node)) {
      division.stage = *flag ? 3 : 2;
      return;
    }
    const Strategy* strategy = find_strategy(node);
    if (strategy == nullptr) {
      is_refused = true;
      return layer_.refuse_until_later(
          said, formatted("'{}' is no strategy of FSDP: full_shard, shard_grad_op, no_shard", node.text),
          "memory.shard");
    }
    division.stage = strategy->stage;
  }
  void take_offload(const Node* flag) {
    if (flag != nullptr && !is_off(*flag)) division.states = division.weights = true;
  }

  Division division;
  bool is_refused = false;

 private:
  Layer& layer_;
};

// transformers' `fsdp`: words with blanks between them, or a list of them, or true.
void read_words(Reader& reader, const Said& said) {
  const Node& value = said.value;
  reader.division.stage = 3;  // its default
  std::vector<std::string> words;
  if (value.kind == Node::Kind::scalar)
    for (const std::string& part : split(value.text, ' ')) words.push_back(part);
  for (const Node& item : value.items) words.push_back(item.text);
  for (const std::string& word : words) {
    if (word == "offload") reader.division.states = reader.division.weights = true;
    const Node node = scalar_at(value, word);
    const bool is_other = word == "offload" || word == "auto_wrap" || read_foreign_flag(node);
    if (!is_other) reader.take_strategy(said, node);
  }
}

const Node* find_setting(const Node& config, const char* name) {
  const Node* node = find_node(config, formatted("fsdp_{}", name));
  return node != nullptr ? node : find_node(config, name);
}

// The map, or the file that is named; nothing if that file is missing: then the planner chooses.
std::optional<Node> read_config(const Layer& layer, const Said& said) {
  try {
    Node config = layer.read_file(said.value);
    if (config.kind == Node::Kind::map) return config;
  } catch (const UsageError&) {  // NOLINT: what it says changes no result
  }
  return std::nullopt;
}

void read_settings(Reader& reader, const Said& said, const Node& config) {
  if (!reader.division.stage) reader.division.stage = 3;
  for (const char* key : {"sharding_strategy", "reshard_after_forward"}) {
    const Node* node = find_setting(config, key);
    if (node != nullptr && node->kind == Node::Kind::scalar) reader.take_strategy(said, *node);
  }
  for (const char* key : {"offload_params", "cpu_offload"}) reader.take_offload(find_setting(config, key));
}

// accelerate has a section of FSDP in files for other kinds of launches, too.
bool is_of_fsdp(const Layer& layer) {
  const Said* type = layer.part("@distributed");
  if (type != nullptr) return type->value.is_word("FSDP");
  // transformers writes the defaults of fsdp_config with `fsdp: []`, which is off.
  const Said* words = layer.part("@fsdp");
  return words == nullptr || !is_off(words->value);
}

bool is_ddp(const Said* type) { return type != nullptr && type->value.text.starts_with("MULTI_"); }

}  // namespace

std::vector<const Said*> keys_of_fsdp(const Layer& layer) {
  std::vector<const Said*> keys;
  for (const Said* said :
       present({layer.part("@fsdp"), is_of_fsdp(layer) ? layer.part("@fsdp_config") : nullptr,
                layer.part("@fsdp_strategy"), layer.part("@fsdp_reshard"), layer.part("@fsdp_offload")}))
    if (!is_off(said->value) || said == layer.part("@fsdp_reshard"))
      keys.push_back(said);  // off is a strategy
  if (keys.empty() && is_ddp(layer.part("@distributed"))) keys.push_back(layer.part("@distributed"));
  return keys;
}

std::optional<Division> read_fsdp_division(Layer& layer, const std::vector<const Said*>& from) {
  Reader reader(layer);
  for (const Said* said : from) {
    if (said == layer.part("@distributed")) reader.division.stage = 0;  // whole at each
    if (said == layer.part("@fsdp")) read_words(reader, *said);
    if (said == layer.part("@fsdp_config"))
      if (const auto config = read_config(layer, *said)) read_settings(reader, *said, *config);
    if (said == layer.part("@fsdp_strategy") || said == layer.part("@fsdp_reshard"))
      reader.take_strategy(*said, said->value);
    if (said == layer.part("@fsdp_offload")) reader.take_offload(&said->value);
  }
  if (reader.is_refused) return std::nullopt;
  if (!reader.division.stage && reader.division.weights) reader.division.stage = 3;  // torchtune's default
  return reader.division;
}

}  // namespace plimsoll
