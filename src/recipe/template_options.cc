// Options of chat templates.
#include <chrono>

#include "base/strings.h"
#include "recipe/option_types.h"

namespace plimsoll {
namespace {

using namespace option_types;  // NOLINT: as in options.cc

// A date of the calendar: 2025-01-31.
bool is_date(const std::string& text) {
  int year = 0;
  unsigned month = 0;
  unsigned day = 0;
  char rest = 0;
  if (text.size() != 10 || std::sscanf(text.c_str(), "%4d-%2u-%2u%c", &year, &month, &day, &rest) != 3)
    return false;
  return std::chrono::year_month_day(std::chrono::year(year), std::chrono::month(month),
                                     std::chrono::day(day))
      .ok();
}

// The names of builtin_templates(), which this folder does not see.
constexpr std::string_view kTemplates =
    "auto plain chatml llama2 llama3 mistral alpaca trl axolotl axolotl/alpaca axolotl/alpaca:chat "
    "axolotl/alpaca:chatml axolotl/alpaca:phi axolotl/chatml axolotl/deepseek_v2 axolotl/gemma "
    "axolotl/formats axolotl/gemma3 axolotl/llama3 axolotl/metharme axolotl/mistral_v1 axolotl/mistral_v2v3 "
    "axolotl/mistral_v3_tekken axolotl/phi_3 axolotl/phi_35 axolotl/plain axolotl/qwen3 axolotl/qwen_25 "
    "llama-factory llama-factory/alpaca llama-factory/breeze "
    "llama-factory/chatml llama-factory/chatml_de llama-factory/deepseek llama-factory/deepseek3 "
    "llama-factory/deepseekcoder llama-factory/deepseekr1 llama-factory/default llama-factory/empty "
    "llama-factory/fewshot llama-factory/gemma llama-factory/gemma2 llama-factory/granite3 "
    "llama-factory/granite4 llama-factory/llama2 llama-factory/llama2_zh llama-factory/llama3 "
    "llama-factory/mimo llama-factory/ministral llama-factory/mistral llama-factory/mistral_small "
    "llama-factory/olmo llama-factory/openchat llama-factory/openchat-3.6 llama-factory/opencoder "
    "llama-factory/phi llama-factory/phi4 llama-factory/phi4_mini llama-factory/qwen llama-factory/qwen3 "
    "llama-factory/qwen3_5 llama-factory/qwen3_5_nothink llama-factory/qwen3_6 "
    "llama-factory/qwen3_nothink llama-factory/qwen3_unthinking llama-factory/sailor llama-factory/seed_coder llama-factory/smollm2 "
    "llama-factory/solar llama-factory/vicuna llama-factory/xuanyuan llama-factory/yi "
    "llama-factory/zephyr torchtune/llama2 torchtune/llama3 torchtune/mistral torchtune/phi3 torchtune/phi4 torchtune/plain "
    "torchtune/qwen2 torchtune/qwen2-uncut";

}  // namespace

const std::vector<std::string>& template_names() {
  static const std::vector<std::string> kNames = split(kTemplates, ' ');
  return kNames;
}

Option data_template() {
  return make(
      "data.template", [](auto& recipe) -> auto& { return recipe.data.chat_template; },
      "auto, plain, chatml, llama2, llama3, mistral, alpaca, or one of another tool such as "
      "llama-factory/qwen (docs/howto/data.md)",
      "chat template; auto: the model's own, or plain for prompts where it has none",
      [](const Node& node, Folder) -> std::optional<std::string> {
        const auto& names = template_names();
        if (node.kind != Node::Kind::scalar ||
            std::find(names.begin(), names.end(), node.text) == names.end())
          return std::nullopt;
        return node.text;
      },
      [](const std::string& name) { return Json(name); });
}

Option data_date() {
  return make(
      "data.date", [](auto& recipe) -> auto& { return recipe.data.date; },
      "a date such as 2025-01-31, or null", "the date that templates print as today's",
      [](const Node& node, Folder) -> std::optional<std::optional<std::string>> {
        if (node.kind == Node::Kind::null) return std::optional<std::string>();
        const auto text = read_text(node);
        if (!text || !is_date(*text)) return std::nullopt;
        return std::make_optional(text);
      },
      [](const std::optional<std::string>& date) { return print(date); });
}

}  // namespace plimsoll
