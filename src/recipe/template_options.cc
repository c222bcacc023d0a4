// Options of chat templates.
#include <chrono>

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

}  // namespace

Option data_template() {
  return choice<TemplateName>(
      "data.template", [](auto& recipe) -> auto& { return recipe.data.chat_template; },
      {{"auto", TemplateName::automatic},
       {"plain", TemplateName::plain},
       {"chatml", TemplateName::chatml},
       {"llama2", TemplateName::llama2},
       {"llama3", TemplateName::llama3},
       {"mistral", TemplateName::mistral},
       {"alpaca", TemplateName::alpaca}},
      "how conversations become text; auto is the model's own, or for prompts without one plain");
}

Option data_date() {
  return make(
      "data.date", [](auto& recipe) -> auto& { return recipe.data.date; },
      "a date such as 2025-01-31, or null", "what templates print as today's date",
      [](const Node& node, Folder) -> std::optional<std::optional<std::string>> {
        if (node.kind == Node::Kind::null) return std::optional<std::string>();
        const auto text = read_text(node);
        if (!text || !is_date(*text)) return std::nullopt;
        return std::make_optional(text);
      },
      [](const std::optional<std::string>& date) { return print(date); });
}

}  // namespace plimsoll
