#include <array>

#include "recipe/combine.h"
#include "recipe/option.h"

namespace plimsoll {
namespace {

struct Default {
  Tool tool;
  std::string_view key;
  std::string_view value;
};

// Where a tool's default differs from ours and decides what is learnt. A recipe of theirs means theirs.
constexpr std::array kDefaults = {
    Default{Tool::llama_factory, "data.max_length", "2048"},
    Default{Tool::llama_factory, "batch.effective", "8"},
    Default{Tool::llama_factory, "optimizer.lr", "5e-5"},
    Default{Tool::llama_factory, "schedule.name", "linear"},
    Default{Tool::llama_factory, "schedule.warmup", "0"},
    Default{Tool::llama_factory, "schedule.epochs", "3"},
    Default{Tool::llama_factory, "method.type", "lora"},
    Default{Tool::llama_factory, "method.r", "8"},
    Default{Tool::axolotl, "data.max_length", "512"},
    Default{Tool::axolotl, "batch.effective", "1"},
    Default{Tool::axolotl, "method.type", "full"},
    Default{Tool::axolotl, "precision", "fp32"},
    Default{Tool::torchtune, "schedule.name", "constant"},
    Default{Tool::torchtune, "schedule.warmup", "0"},
    Default{Tool::torchtune, "optimizer.weight_decay", "0.01"},
    Default{Tool::torchtune, "optimizer.max_grad_norm", "0"},
    Default{Tool::torchtune, "method.r", "8"},
    Default{Tool::torchtune, "method.alpha", "16"},
    Default{Tool::trl, "batch.effective", "8"},
    Default{Tool::trl, "optimizer.lr", "2e-5"},
    Default{Tool::trl, "schedule.name", "linear"},
    Default{Tool::trl, "schedule.warmup", "0"},
    Default{Tool::trl, "schedule.epochs", "3"},
    Default{Tool::trl, "method.type", "full"},
    Default{Tool::trl, "method.dropout", "0.05"},
    Default{Tool::trl, "method.double_quant", "false"},
};

// What follows from other keys.
void fill_dependent_defaults(Layer& layer) {
  const bool is_full = layer.method() == MethodType::full;
  const Node* rank = layer.given("method.r");
  if (layer.tool() == Tool::llama_factory) {
    if (rank != nullptr && !is_full)
      layer.emit_default("method.alpha", std::to_string(2 * std::atoll(rank->text.c_str())));
    layer.emit_default("precision", is_full ? "fp32" : "bf16");
  }
  if (layer.tool() == Tool::trl) layer.emit_default("precision", is_full ? "bf16-master" : "bf16");
  if (layer.tool() == Tool::axolotl && layer.given("schedule.warmup") == nullptr)
    layer.emit_default("schedule.warmup", "3%");
}

}  // namespace

void fill_tool_method(Layer& layer) {
  for (const Default& entry : kDefaults)
    if (entry.tool == layer.tool() && entry.key == "method.type") layer.emit_default(entry.key, entry.value);
}

void fill_tool_defaults(Layer& layer) {
  if (!layer.tool()) return;
  for (const Default& entry : kDefaults) {
    if (entry.tool != *layer.tool()) continue;
    const bool is_adapter_key = find_option(entry.key)->method != MethodType::full;
    if (is_adapter_key && layer.method() < find_option(entry.key)->method) continue;
    layer.emit_default(entry.key, entry.value);
  }
  fill_dependent_defaults(layer);
}

}  // namespace plimsoll
