// The texts that LLaMA-Factory, axolotl, torchtune and TRL make of their rows, under TOOL/NAME. Facts are
// those of LLaMA-Factory 0.9.5 (src/llamafactory/data/template.py, formatter.py), axolotl 0.19.0
// (prompters.py, prompt_strategies/), torchtune 0.6.1 and its main branch (models/*/_tokenizer.py,
// data/_messages.py, data/_prompt_templates.py) and TRL 1.16.0 (trainer/sft_trainer.py).
#include <array>
#include <utility>

#include "chat/builtin_templates.h"

namespace plimsoll {
namespace {

using Tokens = TemplateRules::Tokens;
using Cutting = TemplateRules::Cutting;
using Answers = TemplateRules::Answers;

// --- LLaMA-Factory ---------------------------------------------------------------------------------------

// A row of its register: texts around the content of a message. '\1' cuts, '\2' stands for the token that
// begins a text, '\3' for the one that ends it; both are tokenised by themselves.
struct Registered {
  std::string_view name;
  std::string_view prefix, before_system, after_system, before_user, after_user, before_answer, after_answer;
  std::string_view system;       // where the row has none
  bool system_in_user = false;   // its text is a part of the first question
  bool thinks = false;           // an answer without thoughts begins with empty ones
  bool ends_once = false;        // the end-of-text token stands behind the last answer alone (efficient_eos)
  bool asks_unthinking = false;  // an empty thought ends each question, and thoughts of answers are left out
};

constexpr std::string_view kImSystem = "<|im_start|>system\n";
constexpr std::string_view kImUser = "<|im_start|>user\n";
constexpr std::string_view kImEnd = "<|im_end|>\n";
constexpr std::string_view kImAsk = "<|im_end|>\n<|im_start|>assistant\n";
constexpr std::string_view kHeaderAsk = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n";
constexpr std::string_view kHeaderUser = "<|start_header_id|>user<|end_header_id|>\n\n";
constexpr std::string_view kHeaderSystem = "<|start_header_id|>system<|end_header_id|>\n\n";

constexpr std::string_view kRoleUser = "<|start_of_role|>user<|end_of_role|>";
constexpr std::string_view kRoleSystem = "<|start_of_role|>system<|end_of_role|>";
constexpr std::string_view kRoleAsk = "<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>";
constexpr std::string_view kDeepSeekCoder =
    "You are an AI programming assistant, utilizing the DeepSeek Coder model, developed by DeepSeek Company, "
    "and you only answer questions related to computer science. For politically sensitive questions, "
    "security and privacy issues, and other non-computer science questions, you will refuse to answer.\n";
constexpr std::string_view kSeedCoder =
    "You are an AI programming assistant, utilizing the Seed-Coder model, developed by ByteDance Seed, and "
    "you only answer questions related to computer science. For politically sensitive questions, security "
    "and privacy issues, and other non-computer science questions, you will refuse to answer.\n\n";
constexpr std::string_view kXuanYuan =
    "以下是用户和人工智能助手之间的对话。用户以Human开头，人工智能助手以Assistant开头，会对人类提出的问题给出有帮助、高质量、"
    "详细和礼貌的回答，并且总是拒绝参与与不道德、不安全、有争议、政治敏感等相关的话题、问题和指示。\n";
constexpr std::string_view kGemmaUser = "<start_of_turn>user\n";
constexpr std::string_view kGemmaAsk = "<end_of_turn>\n<start_of_turn>model\n";

constexpr std::array kRegister = {
    Registered{"alpaca", "", "", "", "### Instruction:\n", "\n\n### Response:\n", "", "\3\n\n",
               "Below is an instruction that describes a task. Write a response that appropriately completes "
               "the request.\n\n"},
    Registered{"breeze", "\2", "", "", "[INST] ", " [/INST] ", "", "", "", false, false, true},
    Registered{"chatml", "", kImSystem, kImEnd, kImUser, kImAsk, "", kImEnd, ""},
    Registered{"chatml_de", "", kImSystem, kImEnd, kImUser, kImAsk, "", kImEnd,
               "Du bist ein freundlicher und hilfsbereiter KI-Assistent."},
    Registered{"deepseek", "\2", "", "\n\n", "User: ", "\n\nAssistant:", "", "\3", ""},
    Registered{"deepseek3", "\2", "", "", "<｜User｜>", "<｜Assistant｜>", "", "\3", ""},
    Registered{"deepseekcoder", "\2", "", "", "### Instruction:\n", "\n### Response:", "\n", "\n<|EOT|>\n",
               kDeepSeekCoder},
    Registered{"deepseekr1", "\2", "", "", "<｜User｜>", "<｜Assistant｜>", "", "\3", "", false, true},
    Registered{"default", "", "System: ", "\3\n", "Human: ", "\3\nAssistant:", "", "\3\n", ""},
    Registered{"empty", "", "", "", "", "", "", "", ""},
    Registered{"fewshot", "", "", "", "", "", "", "\n\n", "", false, false, true},
    Registered{"gemma", "\2", "", "\n\n", "<start_of_turn>user\n", "<end_of_turn>\n<start_of_turn>model\n",
               "", "<end_of_turn>\n", "", true},
    Registered{"gemma2", "\2", "", "\n\n", kGemmaUser, kGemmaAsk, "", "<end_of_turn>\n", "", true, false,
               true},
    Registered{"granite3", "", kRoleSystem, "<|end_of_text|>\n", kRoleUser, kRoleAsk, "", "<|end_of_text|>\n",
               ""},
    Registered{"granite4", "", kRoleSystem, "<|end_of_text|>\n", kRoleUser, kRoleAsk, "", "<|end_of_text|>\n",
               "You are Granite, developed by IBM. You are a helpful AI assistant."},
    Registered{"llama2", "", "<<SYS>>\n", "\n<</SYS>>\n\n", "\2[INST] ", " [/INST]", "", "\3", "", true},
    Registered{"llama2_zh", "", "<<SYS>>\n", "\n<</SYS>>\n\n", "\2[INST] ", " [/INST]", "", "\3",
               "You are a helpful assistant. 你是一个乐于助人的助手。", true},
    Registered{"llama3", "\2", kHeaderSystem, "<|eot_id|>", kHeaderUser, kHeaderAsk, "", "<|eot_id|>", ""},
    Registered{"mimo", "", kImSystem, kImEnd, kImUser, kImAsk, "", kImEnd, "You are a helpful assistant.",
               false, true},
    Registered{"ministral", "\2", "", "\n\n", "[INST]", "[/INST]", "", "\3", "", true},
    Registered{"mistral", "\2", "", "\n\n", "[INST] ", "[/INST]", " ", "\3", "", true},
    Registered{"mistral_small", "\2", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[INST]", "[/INST]", "", "\3",
               ""},
    Registered{"olmo", "\3", "", "", "<|user|>\n", "<|assistant|>\n", "", "\3", ""},
    Registered{"openchat", "\2", "", "", "GPT4 Correct User: ", "\3GPT4 Correct Assistant:", "", "\3", ""},
    Registered{"openchat-3.6", "\2", "", "", "<|start_header_id|>GPT4 Correct User<|end_header_id|>\n\n",
               "<|eot_id|><|start_header_id|>GPT4 Correct Assistant<|end_header_id|>\n\n", "", "\3", ""},
    Registered{"opencoder", "", kImSystem, kImEnd, kImUser, kImAsk, "", kImEnd,
               "You are OpenCoder, created by OpenCoder Team."},
    Registered{"phi", "", "<|system|>\n", "<|end|>\n", "<|user|>\n", "<|end|>\n<|assistant|>\n", "",
               "<|end|>\n", ""},
    Registered{"phi4", "", "<|im_start|>system<|im_sep|>", "<|im_end|>", "<|im_start|>user<|im_sep|>",
               "<|im_end|><|im_start|>assistant<|im_sep|>", "", "<|im_end|>", ""},
    Registered{"phi4_mini", "", "<|system|>", "<|end|>", "<|user|>", "<|end|><|assistant|>", "", "<|end|>",
               ""},
    Registered{"qwen", "", kImSystem, kImEnd, kImUser, kImAsk, "", kImEnd,
               "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."},
    Registered{"qwen3", "", kImSystem, kImEnd, kImUser, kImAsk, "", kImEnd, "", false, true},
    // With enable_thinking: false.
    Registered{"qwen3_unthinking", "", kImSystem, kImEnd, kImUser, kImAsk, "", kImEnd, "", false, false,
               false, true},
    // Those of Qwen 3.5 and 3.6 differ in tools and images, which rows of these templates do not have.
    Registered{"qwen3_5", "", kImSystem, kImEnd, kImUser, kImAsk, "", kImEnd, "", false, true},
    Registered{"qwen3_5_nothink", "", kImSystem, kImEnd, kImUser, kImAsk, "", kImEnd, ""},
    Registered{"qwen3_6", "", kImSystem, kImEnd, kImUser, kImAsk, "", kImEnd, "", false, true},
    Registered{"qwen3_nothink", "", kImSystem, kImEnd, kImUser, kImAsk, "", kImEnd, ""},
    Registered{
        "sailor", "", kImSystem, kImEnd, "<|im_start|>question\n", "<|im_end|>\n<|im_start|>answer\n", "",
        kImEnd,
        "You are an AI assistant named Sailor created by Sea AI Lab. Your answer should be friendly, unbiased, "
        "faithful, informative and detailed."},
    Registered{"seed_coder", "", "\2system\n", "\3", "\2user\n", "\3\2assistant\n", "", "\3", kSeedCoder},
    Registered{"smollm2", "", kImSystem, kImEnd, kImUser, kImAsk, "", kImEnd,
               "You are a helpful AI assistant named SmolLM, trained by Hugging Face."},
    Registered{"solar", "", "### System:\n", "\n\n", "### User:\n", "\n\n### Assistant:\n", "", "", "", false,
               false, true},
    Registered{"vicuna", "", "", "", "USER: ", " ASSISTANT:", "", "\3",
               "A chat between a curious user and an artificial intelligence assistant. The assistant gives "
               "helpful, detailed, and polite answers to the user's questions."},
    Registered{"xuanyuan", "", "", "", "Human: ", " Assistant:", "", "\3", kXuanYuan},
    Registered{"yi", "", kImSystem, kImEnd, kImUser, kImAsk, "", kImEnd, ""},
    Registered{"zephyr", "", "<|system|>\n", "\3", "<|user|>\n", "\3<|assistant|>\n", "", "\3",
               "You are Zephyr, a helpful assistant."},
};

// The text as an expression of Jinja: 'a' ~ bos_token ~ 'b'.
std::string expression(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\1')
      out += kCut;
    else if (c == '\2')
      out.append(kCut).append("' ~ bos_token ~ '").append(kCut);
    else if (c == '\3')
      out.append(kCut).append("' ~ eos_token ~ '").append(kCut);
    else if (c == '\n')
      out += "\\n";
    else if (c == '\'')
      out += "\\'";
    else
      out += c;
  }
  return out + "'";
}

std::string cut() { return "'" + std::string(kCut) + "'"; }

// data/template.py: ReasoningTemplate.encode_multiturn with enable_thinking off. A thought stands alone at the beginning
// of an answer; other forms are refused.
std::string without_thoughts() {
  const std::string thought = R"('<think>\n\n</think>\n\n')";
  return R"({%- if said.split('<think>') | length > 2 or said.split('</think>') | length > 2 %})"
         R"({{- raise_exception('an answer with more than one thought is not rendered by this template') }}{%- endif %}
{%- if '<think>\n' in said and '\n</think>\n\n' in said %}{%- set said = (said.split('<think>\n')[0] ~ said.split('\n</think>\n\n')[-1]).lstrip('\n') %}{%- endif %}
{%- if '<think>' in said or '</think>' in said %}{{- raise_exception('a thought of another form than <think>, a line each, is not rendered by this template') }}{%- endif %}
{{- )" + cut() +
         " ~ " + thought + " ~ " + cut() + " }}\n";
}

// Questions and answers in turns behind at most one system message; what else a row holds is refused.
std::string source_of(const Registered& row) {
  const auto around = [&](std::string_view before, const std::string& what, std::string_view after) {
    return expression(before) + " ~ " + what + " ~ " + expression(after);
  };
  std::string source =
      "{%- set ns = namespace(system=" + expression(row.system) + ", turn='user', first=true) %}\n";
  source += "{{- " + expression(row.prefix) + " }}\n{%- for message in messages %}\n";
  source +=
      "{%- if message.role == 'system' and loop.first %}{%- set ns.system = message.content or ns.system "
      "%}\n";
  source +=
      "{%- elif message.role != ns.turn %}{{- raise_exception(\"questions and answers take turns here; '\" ~ "
      "message.role ~ \"' stands where '\" ~ ns.turn ~ \"' is expected\") }}\n";
  source +=
      "{%- elif message.tool_calls %}{{- raise_exception('calls of tools are not rendered by this template') "
      "}}\n";
  source += "{%- elif message.role == 'user' %}\n";
  const std::string system =
      "(" + around(row.before_system, "ns.system", row.after_system) + " if ns.first and ns.system else '')";
  if (row.system_in_user)
    source += "{{- " + around(row.before_user, system + " ~ message.content", row.after_user) + " }}\n";
  else
    source += "{{- " + system + " ~ " + cut() + " ~ " +
              around(row.before_user, "message.content", row.after_user) + " }}\n";
  source +=
      "{%- set ns.turn = 'assistant' %}{%- set ns.first = false %}\n{%- else %}\n{%- set said = message.content %}";
  if (row.asks_unthinking) source += without_thoughts();
  source += "{%- generation %}{{- ";
  if (row.thinks)
    source +=
        "('' if '<think>' in message.content or '</think>' in message.content else "
        "'<think>\\n\\n</think>\\n\\n" +
        std::string(kCut) + "') ~ ";
  source += around(row.before_answer, "said", row.after_answer);
  if (row.ends_once) source += " ~ (" + expression("\3") + " if loop.last else '')";
  source += " }}{%- endgeneration %}\n{%- set ns.turn = 'user' %}\n{%- endif %}\n{%- endfor %}";
  return source;
}

// --- axolotl ---------------------------------------------------------------------------------------------

// Instructions with or without an input; `system` stands before both. The prompt begins as the tokenizer
// begins a text, the answer ends with the end-of-text token unless it is empty.
std::string instruction_source(std::string_view with_input, std::string_view without_input,
                               std::string_view with_prompt, std::string_view without_prompt,
                               std::string_view before_system, std::string_view after_system) {
  const auto text = [](std::string_view part) { return expression(part); };
  return "{%- if messages | length > 2 or messages[0].role != 'user' %}{{- raise_exception('one question and "
         "its answer are expected') }}{%- endif %}\n"
         "{%- set ask = messages[0] %}{%- set given = ask.input %}{%- set task = ask.instruction if "
         "ask.instruction is defined else ask.content %}\n"
         "{{- text_start ~ " +
         cut() + " }}\n{%- if given %}{{- " + text(before_system) + " ~ " + text(with_prompt) + " ~ " +
         text(after_system) + " ~ " + std::string(with_input) + " }}\n{%- else %}{{- " + text(before_system) +
         " ~ " + text(without_prompt) + " ~ " + text(after_system) + " ~ " + std::string(without_input) +
         " }}{%- endif %}\n{%- for message in messages[1:] %}{%- if message.content %}{%- generation %}{{- "
         "message.content ~ " +
         cut() +
         " ~ ('' if message.content.endswith(eos_token) else eos_token) }}{%- endgeneration %}{%- endif "
         "%}{%- endfor %}";
}

constexpr std::string_view kWithInput =
    "Below is an instruction that describes a task, paired with an input that provides further context. "
    "Write a response that appropriately completes the request.";
constexpr std::string_view kWithoutInput =
    "Below is an instruction that describes a task. Write a response that appropriately completes the "
    "request.";
constexpr std::string_view kInstruct =
    R"('### Instruction:\n' ~ task ~ '\n\n### Input:\n' ~ given ~ '\n\n### Response:\n')";
constexpr std::string_view kInstructAlone = R"('### Instruction:\n' ~ task ~ '\n\n### Response:\n')";

// Conversations: the texts of utils/chat_templates/templates/*.jinja for contents that are text.
constexpr std::array kAxolotlChats = {
    std::pair{"deepseek_v2",
              R"({{- bos_token }}{%- for message in messages %}
{%- if message.role == 'user' %}{{- '<｜User｜>' ~ message.content }}
{%- elif message.role == 'assistant' %}{{- '<｜Assistant｜>' ~ message.content ~ eos_token }}
{%- elif message.role == 'system' %}{{- message.content ~ '\n\n' }}{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{- '<｜Assistant｜>' }}{%- endif %})"},
    std::pair{"gemma",
              R"({{- bos_token }}{%- for message in messages %}
{%- if message.role == 'system' %}{{- raise_exception('this template has no system message') }}{%- endif %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('questions and answers take turns here') }}{%- endif %}
{{- '<start_of_turn>' ~ ('model' if message.role == 'assistant' else message.role) ~ '\n' }}
{{- (message.content | trim) ~ '<end_of_turn>\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<start_of_turn>model\n' }}{%- endif %})"},
    std::pair{"gemma3",
              R"({{- bos_token }}{%- set ns = namespace(system='') %}{%- set turns = messages %}
{%- if messages[0].role == 'system' %}{%- set ns.system = messages[0].content ~ '\n\n' %}
{%- set turns = messages[1:] %}{%- endif %}{%- for message in turns %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('questions and answers take turns here') }}{%- endif %}
{{- '<start_of_turn>' ~ ('model' if message.role == 'assistant' else message.role) ~ '\n' }}
{{- (ns.system if loop.first else '') ~ (message.content | trim) ~ '<end_of_turn>\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<start_of_turn>model\n' }}{%- endif %})"},
    std::pair{"metharme",
              R"({{- bos_token ~ '<|system|>' }}{%- set turns = messages %}
{%- if messages[0].role == 'system' %}{{- messages[0].content }}{%- set turns = messages[1:] %}
{%- else %}{{- 'Enter RP mode. You shall reply to the user while staying in character. Your responses must be' }}
{{- ' detailed, creative, immersive, and drive the scenario forward.' }}{%- endif %}
{%- for message in turns %}{%- if message.role == 'user' %}{{- '<|user|>' ~ message.content.strip() }}
{%- elif message.role == 'assistant' %}{{- '<|model|>' ~ message.content.strip() }}{%- endif %}{%- endfor %}
{{- '<|model|>' if add_generation_prompt else eos_token }})"},
    std::pair{"mistral_v1",
              R"({{- bos_token }}{%- set ns = namespace(system='') %}{%- set turns = messages %}
{%- if messages[0].role == 'system' %}{%- set ns.system = messages[0].content ~ '\n\n' %}
{%- set turns = messages[1:] %}{%- endif %}{%- for message in turns %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('questions and answers take turns here') }}{%- endif %}
{%- if message.role == 'user' %}
{{- ' [INST] ' ~ (ns.system if loop.first else '') ~ message.content ~ ' [/INST]' }}
{%- elif message.role == 'assistant' %}{{- ' ' ~ message.content ~ eos_token }}
{%- else %}{{- raise_exception('only users and assistants speak here') }}{%- endif %}{%- endfor %})"},
    std::pair{"mistral_v2v3",
              R"({{- bos_token }}{%- set ns = namespace(system='') %}{%- set turns = messages %}
{%- if messages[0].role == 'system' %}{%- set ns.system = messages[0].content ~ '\n\n' %}
{%- set turns = messages[1:] %}{%- endif %}{%- for message in turns %}
{%- if message.role == 'tool' or message.tool_calls %}
{{- raise_exception('this template has no tools here') }}{%- endif %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('questions and answers take turns here') }}{%- endif %}
{%- if message.role == 'user' %}
{{- '[INST] ' ~ (ns.system if loop.last else '') ~ message.content ~ '[/INST]' }}
{%- elif message.role == 'assistant' %}{{- ' ' ~ (message.content | trim) ~ eos_token }}
{%- else %}{{- raise_exception('only users and assistants speak here') }}{%- endif %}{%- endfor %})"},
    std::pair{"mistral_v3_tekken",
              R"({{- bos_token }}{%- set ns = namespace(system='') %}{%- set turns = messages %}
{%- if messages[0].role == 'system' %}{%- set ns.system = messages[0].content ~ '\n\n' %}
{%- set turns = messages[1:] %}{%- endif %}{%- for message in turns %}
{%- if message.role == 'tool' or message.tool_calls %}
{{- raise_exception('this template has no tools here') }}{%- endif %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('questions and answers take turns here') }}{%- endif %}
{%- if message.role == 'user' %}
{{- '[INST]' ~ (ns.system if loop.last else '') ~ message.content ~ '[/INST]' }}
{%- elif message.role == 'assistant' %}{{- message.content ~ eos_token }}
{%- else %}{{- raise_exception('only users and assistants speak here') }}{%- endif %}{%- endfor %})"},
    std::pair{"phi_3",
              R"({{- bos_token }}{%- for message in messages %}
{%- if message.role == 'system' %}{{- '<|system|>\n' ~ message.content ~ '<|end|>\n' }}
{%- elif message.role == 'user' %}{{- '<|user|>\n' ~ message.content ~ '<|end|>\n<|assistant|>\n' }}
{%- elif message.role == 'assistant' %}{{- message.content ~ '<|end|>\n' }}{%- endif %}{%- endfor %})"},
    std::pair{"phi_35",
              R"({%- for message in messages %}
{%- if message.role == 'system' and message.content %}{{- '<|system|>\n' ~ message.content ~ '<|end|>\n' }}
{%- elif message.role == 'user' %}{{- '<|user|>\n' ~ message.content ~ '<|end|>\n' }}
{%- elif message.role == 'assistant' %}{{- '<|assistant|>\n' ~ message.content ~ '<|end|>\n' }}{%- endif %}
{%- endfor %}{%- if add_generation_prompt %}{{- '<|assistant|>\n' }}{%- endif %})"},
    std::pair{"qwen3",
              R"({%- if tools %}{{- raise_exception('this template has no tools here') }}{%- endif %}
{%- set ns = namespace(asked=messages | length - 1) %}{%- for message in messages %}
{%- if message.role == 'tool' or message.tool_calls %}
{{- raise_exception('this template has no tools here') }}{%- endif %}
{%- if message.role == 'user' %}{%- set ns.asked = loop.index0 %}{%- endif %}{%- endfor %}
{%- for message in messages %}{%- set said = message.content %}{%- set thoughts = '' %}
{%- if message.role == 'assistant' %}
{%- if message.reasoning_content is string %}{%- set thoughts = message.reasoning_content %}
{%- elif '</think>' in said %}
{%- set thoughts = said.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
{%- set said = said.split('</think>')[-1].lstrip('\n') %}{%- endif %}
{%- if loop.index0 > ns.asked and (loop.last or thoughts) %}
{%- set said = '<think>\n' ~ thoughts.strip('\n') ~ '\n</think>\n\n' ~ said.lstrip('\n') %}{%- endif %}
{%- endif %}{{- '<|im_start|>' ~ message.role ~ '\n' ~ said ~ '<|im_end|>\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n<think>\n\n' }}{%- endif %})"},
    std::pair{"qwen_25",
              R"({%- if tools %}{{- raise_exception('this template has no tools here') }}{%- endif %}
{%- if messages[0].role != 'system' %}
{{- '<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n' }}
{%- endif %}{%- for message in messages %}
{%- if message.role == 'tool' or message.tool_calls %}
{{- raise_exception('this template has no tools here') }}{%- endif %}
{{- '<|im_start|>' ~ message.role ~ '\n' ~ message.content ~ '<|im_end|>\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %})"},
};

std::vector<BuiltinTemplate> axolotl_templates() {
  const TemplateRules apart = {Tokens::pieces};
  const TemplateRules contents = {Tokens::whole, Cutting::side, Answers::contents};
  std::vector<BuiltinTemplate> all;
  all.push_back({"axolotl", "", contents});
  all.push_back({"axolotl/alpaca",
                 instruction_source(kInstruct, kInstructAlone, kWithInput, kWithoutInput, "", "\n\n"),
                 apart});
  all.push_back(
      {"axolotl/alpaca:chat",
       instruction_source(R"('USER: ' ~ task ~ '\n' ~ given ~ '\nASSISTANT:')",
                          R"('USER: ' ~ task ~ '\nASSISTANT:')", kWithInput, kWithoutInput, "SYSTEM: ", "\n"),
       apart});
  all.push_back({"axolotl/alpaca:chatml",
                 instruction_source(
                     R"('<|im_start|>user\n' ~ task ~ '\n' ~ given ~ '<|im_end|>\n<|im_start|>assistant\n')",
                     R"('<|im_start|>user\n' ~ task ~ '<|im_end|>\n<|im_start|>assistant\n')", kWithInput,
                     kWithoutInput, "<|im_start|>system\n", "<|im_end|>\n"),
                 apart});
  all.push_back({"axolotl/alpaca:phi",
                 instruction_source(R"('<|user|>\n' ~ task ~ '<|end|>' ~ given ~ '<|assistant|>')",
                                    R"('<|user|>\n' ~ task ~ '<|end|>\n<|assistant|>\n')", kWithInput,
                                    kWithoutInput, "<|system|>\n", "<|end|>\n"),
                 apart});
  all.push_back({"axolotl/formats", "", apart});
  all.push_back({"axolotl/plain", instruction_source("task ~ given", "task", "", "", "", ""), apart});
  all.push_back(
      {"axolotl/chatml",
       "{%- for message in messages %}{{- '<|im_start|>' ~ message.role ~ '\\n' ~ message.content ~ "
       "'<|im_end|>\\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- "
       "endif %}",
       contents});
  all.push_back(
      {"axolotl/llama3",
       "{{- bos_token }}{%- for message in messages %}{{- '<|start_header_id|>' ~ message.role ~ "
       "'<|end_header_id|>\\n\\n' ~ (message.content | trim) ~ '<|eot_id|>' }}{%- endfor %}{%- if "
       "add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}",
       contents});
  for (const auto& [name, source] : kAxolotlChats)
    all.push_back({"axolotl/" + std::string(name), source, contents});
  return all;
}

// --- torchtune -------------------------------------------------------------------------------------------

// Alpaca rows as one question; other messages as they are.
constexpr std::string_view kQuestion =
    "{%- macro said(message) %}{%- if message.instruction is defined %}{%- if message.input %}{{- 'Below is "
    "an instruction that describes a task, paired with an input that provides further context. Write a "
    "response that appropriately completes the request.\\n\\n### Instruction:\\n' ~ message.instruction ~ "
    "'\\n\\n### Input:\\n' ~ message.input ~ '\\n\\n### Response:\\n' }}{%- else %}{{- 'Below is an "
    "instruction that describes a task. Write a response that appropriately completes the request.\\n\\n### "
    "Instruction:\\n' ~ message.instruction ~ '\\n\\n### Response:\\n' }}{%- endif %}{%- else %}{{- "
    "message.content }}{%- endif %}{%- endmacro %}\n";

// `said` prints what is written out of one message; the assistant's words are trained with all that stands
// around them.
std::string every_message(const std::string& written) {
  return "{%- for message in messages %}{%- if message.role == 'assistant' %}{%- generation %}" + written +
         "{%- endgeneration %}{%- else %}" + written + "{%- endif %}{%- endfor %}";
}

std::string im_messages() {
  const std::string c(kCut);
  // The last answer ends with the end token alone.
  return every_message("{{- '<|im_start|>" + c + "' ~ message.role ~ '\\n" + c + "' ~ said(message) ~ '" + c +
                       "' ~ ('<|im_end|>' if loop.last and message.role == 'assistant' else '<|im_end|>" + c +
                       "\\n" + c + "') }}") +
         "{%- if add_generation_prompt %}{{- '<|im_start|>" + c + "assistant\\n" + c + "' }}{%- endif %}";
}

std::string header_messages() {
  const std::string c(kCut);
  const std::string header = c + "<|end_header_id|>" + c + "\\n\\n" + c;
  return "{{- '<|begin_of_text|>" + c + "' }}" +
         every_message("{{- '<|start_header_id|>" + c + "' ~ (message.role | trim) ~ '" + header +
                       "' ~ (said(message) | trim) ~ '" + c + "<|eot_id|>" + c + "' }}") +
         "{{- '<|start_header_id|>" + c + "assistant" + header +
         "' if add_generation_prompt else '<|end_of_text|>' }}";
}

// Texts one after the other; `around` stands for the tags of a question. A text that continues begins without
// a space of the tokenizer's, unless the one before ended with a space.
std::string bare_messages() {
  const std::string next =
      "('" + std::string(kCutBare) + "' if ns.inside and not ns.blank else '" + std::string(kCut) + "')";
  const std::string begin =
      "('' if ns.inside else bos_token) ~ " + next + " ~ text_of.rstrip(' ') ~ '" + std::string(kCut) + "'";
  return "{%- set ns = namespace(inside=false, blank=false) %}{%- for message in messages %}{%- set text_of "
         "= said(message) %}{%- if message.role == 'assistant' %}{%- generation %}{{- " +
         begin + " ~ eos_token }}{%- endgeneration %}{%- set ns.inside = false %}{%- else %}{{- " + begin +
         " }}{%- set ns.inside = true %}{%- endif %}{%- set ns.blank = text_of.endswith(' ') %}{%- endfor %}";
}

std::string instruct_messages(bool has_system) {
  const std::string c = "'" + std::string(kCut) + "'";
  const std::string system = has_system ? "{%- set ns.system = '<<SYS>>\\n' ~ " + c +
                                              " ~ message.content.rstrip(' ') ~ " + c +
                                              " ~ '\\n<</SYS>>\\n\\n' ~ " + c + " %}"
                                        : "{{- raise_exception('this template has no system message') }}";
  return "{%- set ns = namespace(system='', inside=false) %}{%- for message in messages %}{%- if "
         "message.role == 'system' %}" +
         system +
         "{%- elif message.role == 'assistant' %}{%- generation %}{{- ('' if ns.inside else bos_token) ~ " +
         c + " ~ said(message).rstrip(' ') ~ " + c + " ~ eos_token ~ " + c +
         " }}{%- endgeneration %}{%- set ns.inside = false %}{%- else %}{{- ('' if ns.inside else bos_token) "
         "~ " +
         c + " ~ '[INST]' ~ " + c + " ~ ns.system ~ said(message).rstrip(' ') ~ " + c + " ~ ' [/INST]' ~ " +
         c + " }}{%- set ns.inside = true %}{%- endif %}{%- endfor %}";
}

// models/phi3/_tokenizer.py: a beginning before the first message alone, and no end behind the last.
std::string tagged_messages() {
  const std::string c(kCut), bare(kCutBare);
  const std::string end = c + "<|end|>" + c + "\\n" + c;
  return "{{- bos_token }}" +
         every_message("{{- '" + c + "<|' ~ message.role ~ '|>" + c + "\\n" + bare +
                       "' ~ said(message).rstrip(' ') ~ '" + end + "' }}") +
         "{%- if add_generation_prompt %}{{- '" + c + "<|assistant|>" + c + "\\n" + c + "' }}{%- endif %}";
}

// models/phi4/_tokenizer.py: no token ends an answer.
std::string separated_messages() {
  const std::string c(kCut);
  const std::string header = "<|im_sep|>" + c;
  return every_message("{{- '<|im_start|>" + c + "' ~ message.role ~ '" + c + header +
                       "' ~ said(message).rstrip(' ') ~ '" + c +
                       "' ~ ('' if message.role == 'assistant' else '<|im_end|>" + c + "') }}") +
         "{%- if add_generation_prompt %}{{- '<|im_start|>" + c + "assistant" + c + header +
         "' }}{%- endif %}";
}

std::vector<BuiltinTemplate> torchtune_templates() {
  // With tokenizer.max_seq_len the last token is never a target of these (truncate() over the mask).
  const TemplateRules last_hidden = {Tokens::pieces, Cutting::ended, Answers::marked, false, true};
  const TemplateRules learnt_end = {Tokens::pieces, Cutting::ended, Answers::marked, true, false};
  const TemplateRules no_end = {Tokens::pieces, Cutting::side, Answers::marked, false, false};
  const std::string question(kQuestion);
  return {{"torchtune/llama3", question + header_messages(), last_hidden},
          {"torchtune/qwen2", question + im_messages(), last_hidden},
          {"torchtune/qwen2-uncut", question + im_messages(), learnt_end},
          {"torchtune/llama2", question + instruct_messages(true), learnt_end},
          {"torchtune/mistral", question + instruct_messages(false), learnt_end},
          {"torchtune/phi3", question + tagged_messages(), no_end},
          {"torchtune/phi4", question + separated_messages(), no_end},
          {"torchtune/plain", question + bare_messages(), learnt_end}};
}

}  // namespace

std::vector<BuiltinTemplate> tool_templates() {
  std::vector<BuiltinTemplate> all;
  for (const Registered& row : kRegister) {
    TemplateRules rules = {Tokens::pieces, Cutting::turns};
    rules.ends_once = row.ends_once;
    all.push_back({"llama-factory/" + std::string(row.name), source_of(row), rules});
  }
  for (BuiltinTemplate& one : axolotl_templates()) all.push_back(std::move(one));
  for (BuiltinTemplate& one : torchtune_templates()) all.push_back(std::move(one));
  return all;
}

}  // namespace plimsoll
