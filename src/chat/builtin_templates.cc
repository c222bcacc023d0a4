#include "chat/builtin_templates.h"

#include <algorithm>
#include <utility>

namespace plimsoll {
namespace {

constexpr std::string_view kChatml = R"({%- for message in messages %}
    {{- '<|im_start|>' ~ message.role ~ '\n' }}
    {%- if message.role == 'assistant' -%}
        {% generation %}{{ message.content ~ '<|im_end|>' }}{% endgeneration %}
    {%- else %}
        {{- message.content ~ '<|im_end|>' }}
    {%- endif %}
    {{- '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %})";

constexpr std::string_view kLlama3 = R"({{- bos_token }}
{%- for message in messages %}
    {{- '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\n\n' }}
    {%- if message.role == 'assistant' -%}
        {% generation %}{{ message.content | trim ~ '<|eot_id|>' }}{% endgeneration %}
    {%- else %}
        {{- message.content | trim ~ '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %})";

// The system message stands inside of the first instruction.
constexpr std::string_view kLlama2 = R"({%- set ns = namespace(system='', turn='user') %}
{%- for message in messages %}
    {%- if message.role == 'system' and loop.first %}
        {%- set ns.system = '<<SYS>>\n' ~ message.content ~ '\n<</SYS>>\n\n' %}
    {%- elif message.role != ns.turn %}
        {{- raise_exception("llama2 takes turns: user, assistant, user, ...; here stands '" ~ message.role ~ "' instead of '" ~ ns.turn ~ "'") }}
    {%- elif message.role == 'user' %}
        {{- bos_token ~ '[INST] ' ~ (ns.system ~ message.content) | trim ~ ' [/INST]' }}
        {%- set ns.system = '' %}
        {%- set ns.turn = 'assistant' %}
    {%- else %}
        {{- ' ' }}
        {%- generation %}{{ message.content | trim + ' ' + eos_token }}{% endgeneration %}
        {%- set ns.turn = 'user' %}
    {%- endif %}
{%- endfor %})";

constexpr std::string_view kMistral = R"({{- bos_token }}
{%- set ns = namespace(system='', turn='user') %}
{%- for message in messages %}
    {%- if message.role == 'system' and loop.first %}
        {%- set ns.system = message.content ~ '\n\n' %}
    {%- elif message.role != ns.turn %}
        {{- raise_exception("mistral takes turns: user, assistant, user, ...; here stands '" ~ message.role ~ "' instead of '" ~ ns.turn ~ "'") }}
    {%- elif message.role == 'user' %}
        {{- '[INST] ' ~ ns.system ~ message.content ~ ' [/INST]' }}
        {%- set ns.system = '' %}
        {%- set ns.turn = 'assistant' %}
    {%- else %}
        {{- ' ' }}
        {%- generation %}{{ message.content + eos_token }}{% endgeneration %}
        {%- set ns.turn = 'user' %}
    {%- endif %}
{%- endfor %})";

constexpr std::string_view kAlpaca = R"({%- if messages and messages[0].role == 'system' %}
    {{- messages[0].content ~ '\n\n' }}
    {%- set messages = messages[1:] %}
{%- else %}
    {{- 'Below is an instruction that describes a task' ~ (', paired with an input that provides further context' if messages and messages[0].input else '') ~ '. Write a response that appropriately completes the request.\n\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {{- '### Instruction:\n' ~ (message.instruction ~ '\n\n### Input:\n' ~ message.input if message.input else message.content) ~ '\n\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '### Response:\n' }}
        {%- generation %}{{ message.content + eos_token }}{% endgeneration %}
        {{- '' if loop.last else '\n\n' }}
    {%- else %}
        {{- raise_exception("alpaca has no role '" ~ message.role ~ "'") }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '### Response:\n' }}
{%- endif %})";

}  // namespace

const std::vector<BuiltinTemplate>& builtin_templates() {
  static const std::vector<BuiltinTemplate> kTemplates = [] {
    std::vector<BuiltinTemplate> all;
    for (const auto& [name, source] :
         {std::pair{"chatml", kChatml}, std::pair{"llama2", kLlama2}, std::pair{"llama3", kLlama3},
          std::pair{"mistral", kMistral}, std::pair{"alpaca", kAlpaca}})
      all.push_back({name, std::string(source)});
    for (BuiltinTemplate& of_tool : tool_templates()) all.push_back(std::move(of_tool));
    return all;
  }();
  return kTemplates;
}

const BuiltinTemplate* find_builtin_template(std::string_view name) {
  const auto& all = builtin_templates();
  const auto found = std::find_if(all.begin(), all.end(), [name](const auto& t) { return t.name == name; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace plimsoll
