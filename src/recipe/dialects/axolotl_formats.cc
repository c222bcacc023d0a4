#include "recipe/dialects/axolotl_formats.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"

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
{{{{- {}message.content ~ text_cut ~ ('' if message.content.endswith(eos_token) else eos_token) }}}}
{{%- endgeneration %}}{{%- endif %}}{{%- endfor %}})";

// prompters.py: AlpacaPrompter.match_prompt_style.
const InstructionFormats kInstruct = {
    "### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:\n",
    "### Instruction:\n{instruction}\n\n### Response:\n", "{system}\n\n"};
const InstructionFormats kChat = {
    "USER: {instruction}\n{input}\nASSISTANT:", "USER: {instruction}\nASSISTANT:", "SYSTEM: {system}\n"};
const InstructionFormats kChatml = {
    "<|im_start|>user\n{instruction}\n{input}<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\n{instruction}<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>system\n{system}<|im_end|>\n"};

// Formats behind a system message that all rows have, one for rows with an input and one for those without.
InstructionFormats behind(const std::string& with_input, const std::string& without_input,
                          const InstructionFormats& formats) {
  return {with_input + formats.with_input, without_input + formats.without_input, formats.system};
}

using Columns = std::vector<std::pair<std::string, std::string>>;

// prompt_strategies/ of the types' names: alpaca_w_system.py, alpaca_chat.py, alpaca_instruct.py,
// context_qa.py; utils/data/wrappers.py.
std::map<std::string, AxolotlRows> make_named_rows() {
  const Columns alpaca = {{"instruction", "instruction"}, {"output", "output"}, {"input", "input"}};
  Columns with_system = alpaca;
  with_system.emplace_back("system", "system");
  const Columns orca = {{"instruction", "question"}, {"output", "response"}, {"system", "system_prompt"}};
  const InstructionFormats human = {
      "### Human:\n{instruction}\n### Additional Context:\n{input}\n### Assistant:\n",
      "### Human:\n{instruction}\n### Assistant:\n", "### System:\n{system}\n"};
  const InstructionFormats concise = behind(
      "SYSTEM: Below is an instruction from a USER that describes a task, paired with an input that provides "
      "further context. The ASSISTANT writes a response that concisely and appropriately completes the "
      "request.\n\n\n",
      "SYSTEM: Below is an instruction from a USER that describes a task. The ASSISTANT writes a response that "
      "appropriately and concisely completes the request.\n\n\n",
      kChat);
  InstructionFormats clue = behind(
      "Below is an instruction that describes a task, paired with an input that provides further context. Write a "
      "response that appropriately completes the request.\n\n",
      "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n",
      kInstruct);
  clue.before_answer = "what is ";
  const std::string context =
      "SYSTEM: Use the following contextual information to concisely answer the question.\n\n";
  const Columns article = {{"instruction", "question"}, {"output", "answer"}, {"input", "article"}};
  const Columns with_context = {{"instruction", "question"}, {"output", "answer"}, {"input", "context"}};
  return {
      {"alpaca_w_system", {with_system, "", kChat}},
      {"alpaca_w_system.load", {with_system, "", kChat}},
      {"alpaca_w_system.load_chat", {with_system, "", kChat}},
      {"alpaca_w_system.load_instruct", {with_system, "", kInstruct}},
      {"alpaca_w_system.load_open_orca", {orca, "", human}},
      {"alpaca_w_system.load_open_orca_chatml", {orca, "", kChatml}},
      {"alpaca_chat.load_concise", {alpaca, "", concise}},
      {"alpaca_chat.load_qa", {{{"instruction", "question"}, {"output", "answer"}}, "", concise}},
      {"alpaca_chat.load_camel_ai", {{{"instruction", "message_1"}, {"output", "message_2"}}, "", concise}},
      {"alpaca_chat.load_no_prompt", {alpaca, "", kChat}},
      {"alpaca_instruct", {alpaca, "axolotl/alpaca"}},
      {"alpaca_instruct.load", {alpaca, "axolotl/alpaca"}},
      {"alpaca_instruct.load_no_prompt", {alpaca, "", kInstruct}},
      {"context_qa",
       {article,
        "",
        {context + "USER: {input}\n===\n{instruction}\nASSISTANT:",
         context + "USER: \n===\n{instruction}\nASSISTANT:", ""}}},
      {"context_qa.load_v2",
       {with_context,
        "",
        {"Context: {input}\nQuestion: {instruction}\n", "Context: \nQuestion: {instruction}\n", "", "",
         "Answer: "}}},
      {"gpteacher",
       {{{"instruction", "instruction"}, {"output", "response"}, {"input", "input"}}, "axolotl/alpaca"}},
      {"jeopardy", {{{"instruction", "question"}, {"output", "answer"}, {"input", "category"}}, "", clue}},
      {"oasst", {{{"instruction", "INSTRUCTION"}, {"output", "RESPONSE"}}, "axolotl/alpaca"}},
      {"summarizetldr",
       {{{"instruction", "article"}, {"output", "summary"}},
        "",
        {"", "USER: Summarize the following article as a TL;DR.\n{instruction}\nASSISTANT:", ""}}}};
}

const std::map<std::string, AxolotlRows>& all_named_rows() {
  static const std::map<std::string, AxolotlRows> kAll = make_named_rows();
  return kAll;
}

}  // namespace

// `gpteacher:chat` is a type and the style of its formats.
std::optional<AxolotlRows> named_rows(const std::string& type) {
  const size_t colon = type.find(':');
  const auto found = all_named_rows().find(type.substr(0, colon));
  if (found == all_named_rows().end()) return std::nullopt;
  AxolotlRows rows = found->second;
  if (colon == std::string::npos) return rows;
  const std::string style = type.substr(colon);
  if (rows.chat_template != "axolotl/alpaca" || (style != ":chat" && style != ":chatml" && style != ":phi"))
    return std::nullopt;
  rows.chat_template += style;
  return rows;
}

std::string named_row_types() {
  std::vector<std::string> names;
  for (const auto& [name, rows] : all_named_rows()) names.push_back(name);
  return join(names, ", ");
}

std::string instruction_template(const InstructionFormats& formats) {
  const std::string with_input = filled(formats.with_input, {{"instruction", "task"}, {"input", "given"}});
  const std::string without_input = filled(formats.without_input, {{"instruction", "task"}});
  const std::string system = filled(formats.system, {{"system", "ns.system"}});
  const std::string before =
      formats.before_answer.empty() ? "" : nlohmann::json(formats.before_answer).dump() + " ~ ";
  return formatted(kTemplate, nlohmann::json(formats.usual_system).dump(), system, with_input, without_input,
                   before);
}

}  // namespace plimsoll
