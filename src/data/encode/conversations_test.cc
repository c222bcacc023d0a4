#include "data/encode/conversations.h"
#include "chat/conversation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "data/encode/messages.h"
#include "files/test_folder.h"

namespace plimsoll {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

// Has <|im_start|> and <|im_end|>. The other one normalises (NFC).
std::shared_ptr<const Tokenizer> tokenizer_of(const std::string& name) {
  return std::make_shared<const Tokenizer>(Tokenizer::from_file("tests/golden/tokenizers/" + name + ".json"));
}

Conversation talk(const std::vector<std::pair<std::string, std::string>>& turns) {
  Conversation conversation;
  for (const auto& [role, content] : turns)
    conversation.messages.push_back({{"role", role}, {"content", content}});
  return conversation;
}

ChatTemplate chat_of(const std::string& source) {
  return {Template::parse(source, "t"), std::nullopt, {{"eos_token", "<|im_end|>"}}, std::nullopt};
}

// Without generation blocks, so that the answers have to be found.
ChatTemplate unmarked() {
  return chat_of(
      "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}");
}

Example encoded(const std::shared_ptr<const Tokenizer>& tokenizer, const ChatTemplate& chat,
                const Conversation& conversation, bool train_on_prompt = false) {
  Example example;
  conversation_encoder(tokenizer, chat, {.train_on_prompt = train_on_prompt})(
      conversation, [] { return std::string("d.jsonl:7"); }, example);
  return example;
}

// The trained tokens as text, "|" between stretches.
std::string learnt_text(const Tokenizer& tokenizer, const Example& example) {
  std::string text;
  std::vector<int32_t> run;
  for (size_t i = 0; i <= example.ids.size(); ++i) {
    if (i < example.ids.size() && example.labels[i] != kIgnoreLabel) {
      EXPECT_EQ(example.labels[i], example.ids[i]);
      run.push_back(example.ids[i]);
    } else if (!run.empty()) {
      text += (text.empty() ? "" : "|") + tokenizer.decode(run, false);
      run.clear();
    }
  }
  return text;
}

const std::vector<std::pair<std::string, std::string>> kTalk = {{"system", "Be brief."},
                                                                {"user", "The load line?"},
                                                                {"assistant", "Ship's mark."},
                                                                {"user", "Who?"},
                                                                {"assistant", "  Samuel 你好 \n"}};

TEST(Conversations, only_answers_and_their_end_tokens_are_learnt) {
  for (const char* name : {"llama3", "qwen2"}) {
    const auto tokenizer = tokenizer_of(name);
    for (const ChatTemplate& chat : {unmarked(), ChatTemplate::builtin("chatml", "/nowhere", std::nullopt)}) {
      const Example example = encoded(tokenizer, chat, talk(kTalk));
      EXPECT_EQ(example.ids, tokenizer->encode(chat.render(talk(kTalk), false), false)) << name;
      EXPECT_EQ(learnt_text(*tokenizer, example), "Ship's mark.<|im_end|>|  Samuel 你好 \n<|im_end|>")
          << name << ", " << chat.published().name();
    }
  }
}

TEST(Conversations, marks_lead_to_the_end_token_behind_the_content) {
  const auto chat = chat_of(
      "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'assistant' and loop.last "
      "%}"
      "{{ '<think></think>' }}{% endif %}{{ m.content + '<|im_end|>\\n' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}");
  const auto tokenizer = tokenizer_of("llama3");
  const Example example = encoded(tokenizer, chat, talk(kTalk));
  EXPECT_EQ(learnt_text(*tokenizer, example),
            "Ship's mark.<|im_end|>|<think></think>  Samuel 你好 \n<|im_end|>");
}

TEST(Conversations, a_text_that_the_tokenizer_normalises_keeps_its_borders) {
  const auto tokenizer = tokenizer_of("qwen2");
  const auto conversation = talk({{"user", "Cafe\u0301 e\u0301?"},
                                  {"assistant", "Angstro\u0308m"},
                                  {"user", "o\u0308"},
                                  {"assistant", "u\u0308"}});
  const Example example = encoded(tokenizer, unmarked(), conversation);
  EXPECT_EQ(learnt_text(*tokenizer, example), "Angstr\u00F6m<|im_end|>|\u00FC<|im_end|>");
}

TEST(Conversations, tokens_that_take_blanks_along_still_have_places) {
  const auto tokenizer = tokenizer_of("llama3");
  const std::string text = "ab <|im_end|> cd";
  const auto ids = tokenizer->encode(text, false);
  const auto starts = token_starts(*tokenizer, text, ids);
  ASSERT_TRUE(starts);
  EXPECT_EQ(starts->size(), ids.size() + 1);
  EXPECT_EQ(starts->back(), text.size());
  EXPECT_FALSE(token_starts(*tokenizer, "another text", ids));
}

TEST(Conversations, the_prompt_is_learnt_when_asked_for) {
  const Example example = encoded(tokenizer_of("llama3"), unmarked(), talk(kTalk), true);
  EXPECT_EQ(example.labels, example.ids);
}

TEST(Conversations, nothing_to_learn_is_an_error_with_its_place) {
  const auto tokenizer = tokenizer_of("llama3");
  const auto error = [&](const ChatTemplate& chat, const Conversation& conversation) {
    return message_of<DamagedError>([&] { encoded(tokenizer, chat, conversation); });
  };
  EXPECT_THAT(error(unmarked(), talk({{"user", "q"}})),
              HasSubstr("d.jsonl:7: the conversation has nothing to learn"));
  Conversation excluded = talk({{"user", "q"}, {"assistant", "a"}});
  excluded.messages[1]["weight"] = 0;
  EXPECT_THAT(error(unmarked(), excluded), HasSubstr("nothing to learn"));
  EXPECT_THAT(error(chat_of("{% generation %}{% endgeneration %}x"), talk({{"assistant", "a"}})),
              HasSubstr("nothing to learn"));
  EXPECT_THAT(error(chat_of("{{ raise_exception('no system') }}"), talk({{"assistant", "a"}})),
              HasSubstr("d.jsonl:7: t:1: the template refuses this: no system"));
}

TEST(Conversations, the_end_of_a_turn_is_known_to_generation) {
  const auto tokenizer = tokenizer_of("llama3");
  EXPECT_EQ(end_of_turn(*tokenizer, unmarked()), tokenizer->token_id("<|im_end|>"));
  EXPECT_EQ(end_of_turn(*tokenizer, chat_of("{% for m in messages %}{{ m.content }}\n{% endfor %}")),
            std::nullopt);
}

TEST(Conversations, the_recipe_names_the_template_or_the_model_does) {
  const TestFolder folder;
  TemplateChoice choice{folder.path()};
  EXPECT_FALSE(chat_template_of(choice, RowFormat::prompt_response));
  EXPECT_THAT([&] { (void)chat_template_of(choice, RowFormat::messages); },
              testing::ThrowsMessage<UsageError>(HasSubstr("has no chat template")));
  folder.write("chat_template.jinja", "x");
  EXPECT_EQ(chat_template_of(choice, RowFormat::prompt_response)->published().source(), "x");
  EXPECT_FALSE(chat_template_of(choice, RowFormat::text));
  choice.name = "chatml";
  EXPECT_EQ(chat_template_of(choice, RowFormat::messages)->published().name(), "template chatml");
  choice.name = "plain";
  EXPECT_FALSE(chat_template_of(choice, RowFormat::prompt_response));
  EXPECT_THROW((void)chat_template_of(choice, RowFormat::messages), UsageError);
  choice.name = "auto";
  folder.write("chat_template.jinja", "{{ strftime_now('%d %b %Y, %A') }}");
  choice.date = "2025-01-31";
  EXPECT_EQ(chat_template_of(choice, RowFormat::messages)->render(talk({}), false), "31 Jan 2025, Friday");
}

}  // namespace
}  // namespace plimsoll
