#include "chat/chat_template.h"
#include "chat/conversation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "chat/builtin_templates.h"
#include "files/test_folder.h"

namespace plimsoll {
namespace {

using nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;

ChatTemplate chat_of(const std::string& source) {
  return {Template::parse(source, "t"),
          std::nullopt,
          {{"bos_token", "<s>"}, {"eos_token", "</s>"}},
          std::nullopt};
}

Conversation talk(const std::vector<std::pair<std::string, std::string>>& turns) {
  Conversation conversation;
  for (const auto& [role, content] : turns)
    conversation.messages.push_back({{"role", role}, {"content", content}});
  return conversation;
}

const Conversation& two_turns() {
  static const Conversation conversation = talk({{"system", "S"},
                                                 {"user", "q1"},
                                                 {"assistant", "a1"},
                                                 {"user", "q2"},
                                                 {"assistant", "<think>\nt\n</think>\n\na2"}});
  return conversation;
}

std::vector<std::string> learnt(const ChatTemplate& chat, const Conversation& conversation) {
  const TrainingText rendered = chat.render_for_training(conversation);
  EXPECT_EQ(rendered.text, chat.render(conversation, false));
  std::vector<std::string> parts;
  for (const ByteSpan& span : rendered.learnt)
    parts.push_back(rendered.text.substr(span.begin, span.end - span.begin));
  return parts;
}

constexpr const char* kPlainChatml =
    "{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content + '<|end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}";
// Thoughts of all but the last answer are left out.
constexpr const char* kForgetsThoughts =
    "{% for m in messages %}{% set c = m.content if loop.last else "
    "m.content.split('</think>')[-1].lstrip('\\n') %}{{ '<|' + m.role + '|>\\n' }}{% if loop.last and m.role "
    "== 'assistant' and '<think>' not in c %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}{{ c + "
    "'<|end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}";

// LLaMA-Factory's qwen3 with enable_thinking: false: the empty thought belongs to the question.
TEST(ChatTemplate, an_answer_without_thoughts_begins_behind_an_empty_one) {
  const ChatTemplate chat = chat_of(find_builtin_template("llama-factory/qwen3_unthinking")->source);
  const TrainingText rendered = chat.render_for_training(two_turns());
  std::vector<std::string> answers;
  for (const ByteSpan& span : rendered.learnt)
    answers.push_back(rendered.text.substr(span.begin, span.end - span.begin));
  EXPECT_THAT(answers, ElementsAre("a1<|im_end|>\n", "a2<|im_end|>\n"));
  EXPECT_EQ(chat.render(two_turns(), false),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nq1<|im_end|>\n<|im_start|>assistant\n"
            "<think>\n\n</think>\n\na1<|im_end|>\n<|im_start|>user\nq2<|im_end|>\n<|im_start|>assistant\n"
            "<think>\n\n</think>\n\na2<|im_end|>\n");
  for (const char* answer :
       {"<think>a</think>b", "<think>\na\n</think>\n\n<think>\nb\n</think>\n\nc", "a</think>b"})
    EXPECT_THROW((void)chat.render(talk({{"user", "q"}, {"assistant", answer}}), false), UsageError)
        << answer;
}

TEST(ChatTemplate, answers_are_found_by_rendering_what_comes_before_them) {
  EXPECT_THAT(learnt(chat_of(kPlainChatml), two_turns()),
              ElementsAre("a1<|end|>\n", "<think>\nt\n</think>\n\na2<|end|>\n"));
}

// An empty conversation cannot be rendered by it.
TEST(ChatTemplate, an_answer_that_comes_first_is_found_where_the_template_looks_at_the_first_message) {
  const auto chat = chat_of(
      "{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}{% for m in messages %}"
      "<{{ m.role }}>{{ m.thinking or '' }}{{ m.content | trim }}!{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}");
  Conversation conversation = talk({{"assistant", " Hello "}, {"user", "q"}, {"assistant", "a"}});
  EXPECT_THAT(learnt(chat, conversation), ElementsAre("Hello!", "a!"));
  conversation.messages[0]["thinking"] = "hm";
  EXPECT_THROW((void)chat.render_for_training(conversation), TemplateError) << "where the thought begins?";
}

TEST(ChatTemplate, generation_blocks_decide_where_there_are_any) {
  const auto chat = chat_of(
      "{% for m in messages %}[{% if m.role == 'assistant' %}{% generation %}{{ m.content }}!{% "
      "endgeneration %}{% else %}{{ m.content }}{% endif %}]{% endfor %}");
  EXPECT_THAT(learnt(chat, two_turns()), ElementsAre("a1!", "<think>\nt\n</think>\n\na2!"));
}

TEST(ChatTemplate, answers_that_change_with_what_follows_are_found_by_marks) {
  const TrainingText rendered = chat_of(kForgetsThoughts).render_for_training(two_turns());
  EXPECT_FALSE(rendered.to_end);
  EXPECT_THAT(learnt(chat_of(kForgetsThoughts), two_turns()),
              ElementsAre("a1", "<think>\nt\n</think>\n\na2"));
}

TEST(ChatTemplate, what_cannot_be_told_apart_is_refused) {
  const auto error = [](const char* source) {
    try {
      (void)chat_of(source).render_for_training(two_turns());
    } catch (const TemplateError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  // Everything shifts with the number of messages.
  EXPECT_THAT(error("{{ messages|length }}{% for m in messages %}{{ m.content }}{% endfor %}"),
              HasSubstr("message 3 cannot be separated from the rest"));
  // The last answer first, in capitals: no mark comes out as it went in.
  EXPECT_THAT(error("{% for m in messages %}{{ m.content|length }}{{ m.content if loop.last else "
                    "m.content|upper }}{% endfor %}"),
              HasSubstr("{% generation %}"));
}

TEST(ChatTemplate, thinking_is_as_the_template_has_it_unless_it_is_set) {
  const std::string source =
      std::string(kPlainChatml) +
      "{% if add_generation_prompt and enable_thinking is defined and enable_thinking is false %}"
      "<think></think>{% endif %}";
  const Conversation question = talk({{"user", "q"}});
  ChatTemplate chat = chat_of(source);
  EXPECT_EQ(chat.render(question, true), "<|user|>\nq<|end|>\n<|assistant|>\n");
  chat.enable_thinking(false);
  EXPECT_EQ(chat.render(question, true), "<|user|>\nq<|end|>\n<|assistant|>\n<think></think>");
  chat.enable_thinking(true);
  EXPECT_EQ(chat.render(question, true), "<|user|>\nq<|end|>\n<|assistant|>\n");
  ChatTemplate unaware = chat_of(kPlainChatml);
  EXPECT_THROW(unaware.enable_thinking(false), UsageError);
}

TEST(ChatTemplate, messages_of_weight_0_are_not_learnt) {
  Conversation conversation = two_turns();
  conversation.messages[2]["weight"] = 0;
  EXPECT_THAT(learnt(chat_of(kPlainChatml), conversation),
              ElementsAre("<think>\nt\n</think>\n\na2<|end|>\n"));
  EXPECT_THAT(learnt(ChatTemplate::builtin("chatml", "/nowhere", std::nullopt), conversation),
              ElementsAre("<think>\nt\n</think>\n\na2<|im_end|>"));
}

TEST(ChatTemplate, built_in_templates_mark_their_answers) {
  const TestFolder folder;
  folder.write("tokenizer_config.json", R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>"})");
  const auto text = [&](const char* name) {
    return ChatTemplate::builtin(name, folder.path(), std::nullopt)
        .render(talk({{"system", "S"}, {"user", "q"}, {"assistant", "a"}}), false);
  };
  EXPECT_EQ(
      text("chatml"),
      "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n");
  EXPECT_EQ(text("llama2"), "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nq [/INST] a </s>");
  EXPECT_EQ(text("llama3"),
            "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_"
            "id|>\n\n"
            "q<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\na<|eot_id|>");
  EXPECT_EQ(text("mistral"), "<s>[INST] S\n\nq [/INST] a</s>");
  EXPECT_EQ(text("alpaca"), "S\n\n### Instruction:\nq\n\n### Response:\na</s>");
  const Conversation question = talk({{"user", "q"}});
  const Conversation answered =
      talk({{"user", "q"}, {"assistant", "a"}, {"user", "q2"}, {"assistant", "a2"}});
  for (const BuiltinTemplate& known : builtin_templates()) {
    if (known.source.empty() || known.name.find('/') != std::string::npos) continue;  // see below
    const auto chat = ChatTemplate::builtin(known.name, folder.path(), std::nullopt);
    const std::vector<std::string> parts = learnt(chat, answered);
    ASSERT_EQ(parts.size(), 2U) << known.name;
    EXPECT_THAT(parts[1], testing::StartsWith("a2")) << known.name;
    EXPECT_GT(parts[1].size(), 3U) << known.name << " has no end token";
    // An answer continues what generation starts from.
    const std::string prompt = chat.render(question, true);
    EXPECT_THAT(chat.render(answered, false), testing::StartsWith(prompt)) << known.name;
  }
  EXPECT_THROW((void)ChatTemplate::builtin("nothing", folder.path(), std::nullopt), UsageError);
}

// tests/parity/other_tools.py compares the tokens that these texts become with those of the tools.
TEST(ChatTemplate, templates_of_other_tools_learn_their_answers_and_show_no_marks) {
  const TestFolder folder;
  folder.write("tokenizer_config.json", R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>"})");
  const Conversation answered = talk({{"user", "q"}, {"assistant", "a2"}});
  int64_t count = 0;
  for (const BuiltinTemplate& known : builtin_templates()) {
    if (known.name.find('/') == std::string::npos) continue;
    ++count;
    // A row format of the user's own comes as a text.
    const std::optional<std::string> own =
        known.source.empty() ? std::optional<std::string>(
                                   "{{- text_start ~ text_cut ~ messages[0].content }}{%- generation %}{{- "
                                   "messages[1].content ~ text_cut ~ eos_token }}{%- endgeneration %}")
                             : std::nullopt;
    auto chat = ChatTemplate::builtin(known.name, folder.path(), std::nullopt, own);
    chat.begin_texts_with("<s>");
    const TrainingText marked = chat.render_for_training(answered);
    ASSERT_EQ(marked.learnt.size(), 1U) << known.name;
    const ByteSpan part = marked.learnt.front();
    EXPECT_THAT(marked.text.substr(part.begin, part.end - part.begin), HasSubstr("a2")) << known.name;
    const std::string text = chat.render(answered, false);
    EXPECT_THAT(text, testing::AllOf(HasSubstr("q"), HasSubstr("a2"))) << known.name;
    const std::string published = chat.published().source();
    for (const std::string_view mark : {kCut, kCutBare})
      EXPECT_TRUE(text.find(mark) == std::string::npos && published.find(mark) == std::string::npos)
          << known.name;
    for (const char* name : {"text_start", "text_cut"})
      EXPECT_EQ(published.find(name), std::string::npos) << known.name;
  }
  EXPECT_GT(count, 30);
}

TEST(ChatTemplate, the_model_folder_s_own_is_read_from_either_file) {
  const TestFolder folder;
  EXPECT_FALSE(ChatTemplate::of_folder(folder.path(), std::nullopt));
  folder.write("tokenizer_config.json",
               R"({"eos_token": "E", "chat_template": [{"name": "default", "template": "d{{ eos_token }}"},
                   {"name": "tool_use", "template": "t"}]})");
  const auto both = ChatTemplate::of_folder(folder.path(), std::nullopt);
  EXPECT_EQ(both->render(two_turns(), false), "dE");
  Conversation with_tools = two_turns();
  with_tools.tools = ordered_json::array({ordered_json::object()});
  EXPECT_EQ(both->render(with_tools, false), "t");
  folder.write("chat_template.jinja", "file\n");
  EXPECT_EQ(ChatTemplate::of_folder(folder.path(), std::nullopt)->render(two_turns(), false), "file");
  folder.write("chat_template.jinja", "\n{{");
  EXPECT_THAT([&] { (void)ChatTemplate::of_folder(folder.path(), std::nullopt); },
              testing::ThrowsMessage<TemplateError>(HasSubstr("chat_template.jinja:2: ")));
}

TEST(ChatTemplate, thoughts_are_known_under_their_other_names) {
  Conversation conversation = talk({{"assistant", "a"}});
  conversation.messages[0]["thinking"] = "hm";
  EXPECT_EQ(chat_of("{{ messages[0].reasoning_content }}").render(conversation, false), "hm");
}

}  // namespace
}  // namespace plimsoll
