#include "recipe/dialects/axolotl_formats.h"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/format.h"

namespace plimsoll {
namespace {

// The text of a format of Python as an expression of Jinja: `fields` are its names and what they stand for.
std::string filled(std::string_view format,
                   std::initializer_list<std::pair<std::string_view, std::string_view>> fields) {
  std::string parts, text;
  const auto add = [&parts](const std::string& part) {
    if (!parts.empty()) parts += " ~ ";
    parts += part;
  };
  for (size_t i = 0; i < format.size(); ++i) {
    const bool doubled = i + 1 < format.size() && format[i + 1] == format[i];
    if (format[i] == '}' && !doubled) throw UsageError("a '}' stands alone");
    if (format[i] != '{' || doubled) {
      if (format[i] == '{' || format[i] == '}') ++i;
      text += format[i];
      continue;
    }
    const size_t end = format.find('}', i);
    const std::string_view name =
        format.substr(i + 1, end == std::string_view::npos ? std::string_view::npos : end - i - 1);
    const auto field =
        std::find_if(fields.begin(), fields.end(), [&](const auto& one) { return one.first == name; });
    if (field == fields.end() || end == std::string_view::npos)
      throw UsageError(formatted("'{{{}}}' is not filled in there", name.substr(0, 40)));
    if (!text.empty()) add(nlohmann::json(text).dump());
    text.clear();
    add(std::string(field->second));
    i = end;
  }
  if (!text.empty() || parts.empty()) add(nlohmann::json(text).dump());
  return formatted("({})", parts);
}

constexpr char kTemplate[] =
    R"({{%- set ns = namespace(system={}, asked=0) %}}{{%- if messages[0].role == 'system' %}}
{{%- set ns.system = messages[0].content %}}{{%- set ns.asked = 1 %}}{{%- endif %}}
{{%- set ask = messages[ns.asked] %}}{{%- if messages | length > ns.asked + 2 or ask.role != 'user' %}}
{{{{- raise_exception('one question and its answer are expected') }}}}{{%- endif %}}
{{%- set given = ask.input %}}
{{%- set task = ask.instruction if ask.instruction is defined else ask.content %}}
{{{{- text_start ~ text_cut }}}}{{%- if ns.system %}}{{{{- {} }}}}{{%- endif %}}
{{%- if given %}}{{{{- {} }}}}{{%- else %}}{{{{- {} }}}}{{%- endif %}}
{{%- for message in messages[ns.asked + 1:] %}}{{%- if message.content %}}{{%- generation %}}
{{{{- message.content ~ text_cut ~ ('' if message.content.endswith(eos_token) else eos_token) }}}}
{{%- endgeneration %}}{{%- endif %}}{{%- endfor %}})";

}  // namespace

std::string instruction_template(const InstructionFormats& formats) {
  const std::string with_input = filled(formats.with_input, {{"instruction", "task"}, {"input", "given"}});
  const std::string without_input = filled(formats.without_input, {{"instruction", "task"}});
  const std::string system = filled(formats.system, {{"system", "ns.system"}});
  return formatted(kTemplate, nlohmann::json(formats.usual_system).dump(), system, with_input, without_input);
}

}  // namespace plimsoll
