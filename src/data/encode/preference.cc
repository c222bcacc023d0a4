// Rows of preferences: a prompt and two answers of which one is to be preferred.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "chat/conversation.h"
#include "data/encode/dialogue.h"
#include "data/encode/example.h"
#include "data/encode/messages.h"
#include "data/files/cell.h"
#include "files/json.h"
#include "ops/loss/linear_log_prob.h"

namespace plimsoll {
namespace {

// The place at which two answers without a prompt of their own part: TRL's extract_prompt. A space before the
// place belongs to the answers.
size_t shared_text(std::string_view a, std::string_view b) {
  const size_t most = std::min(a.size(), b.size());
  size_t end = 0;
  while (end < most && a[end] == b[end]) ++end;
  while (end > 0 && end < a.size() && (static_cast<unsigned char>(a[end]) & 0xC0U) == 0x80U) --end;
  return end > 0 && end < most && a[end - 1] == ' ' ? end - 1 : end;
}

nlohmann::ordered_json shared_prompt(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b) {
  if (a.is_string() && b.is_string()) {
    const auto& text = a.get_ref<const std::string&>();
    const auto& other = b.get_ref<const std::string&>();
    const bool turns = holds_dialogue(a) && holds_dialogue(b);
    return text.substr(0, turns ? shared_dialogue(text, other) : shared_text(text, other));
  }
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  if (!a.is_array() || !b.is_array()) return messages;
  for (size_t i = 0; i < std::min(a.size(), b.size()) && a[i] == b[i]; ++i) messages.push_back(a[i]);
  return messages;
}

// The part of an answer behind the prompt that it begins with.
nlohmann::ordered_json behind(const nlohmann::ordered_json& prompt, const nlohmann::ordered_json& answer) {
  if (prompt.is_string() && answer.is_string())
    return answer.get_ref<const std::string&>().substr(prompt.get_ref<const std::string&>().size());
  if (!prompt.is_array() || !answer.is_array()) return answer;
  return nlohmann::ordered_json(answer.begin() + static_cast<std::ptrdiff_t>(prompt.size()), answer.end());
}

// The begin of the run of labels that has `before` runs before it; the end where there is no such run.
size_t begin_of_run(const std::vector<int32_t>& labels, int64_t before) {
  for (size_t i = 0; i < labels.size(); ++i)
    if (labels[i] != kIgnoreLabel && (i == 0 || labels[i - 1] == kIgnoreLabel) && before-- == 0) return i;
  return labels.size();
}

size_t parting(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

// Whether an answer is a whole conversation, to which a prompt adds nothing.
bool begins_with_question(const nlohmann::ordered_json& answer) {
  if (!answer.is_array() || answer.size() < 2 || !answer[0].is_object()) return false;
  const std::string role = answer[0].value("role", answer[0].value("from", ""));
  return role == "user" || role == "human" || role == "system";
}

}  // namespace

nlohmann::ordered_json ExampleEncoder::answer_of(const Row& row, const char* part,
                                                 const std::function<std::string()>& where) const {
  nlohmann::ordered_json answer = part_of(row, options_.parts, part);
  if (!options_.dialogues || converse_ == nullptr || answer.is_null()) return answer;
  if (!holds_dialogue(answer))
    throw DamagedError(where() + ": '" + part +
                       "' is no dialogue that begins with \"\\n\\nHuman:\", as the first row's is.");
  return dialogue_messages(answer.get_ref<const std::string&>(),
                           options_.message_role.empty() ? "role" : options_.message_role,
                           options_.message_content.empty() ? "content" : options_.message_content);
}

// As TRL does it: a text's answer begins where the tokens of prompt and answer part from those of the prompt
// alone, one of messages behind the messages that it answers.
void ExampleEncoder::encode_preferred(const nlohmann::ordered_json& prompt,
                                      const nlohmann::ordered_json& answer,
                                      const std::function<std::string()>& where, Example& one,
                                      size_t& prompt_ends) const {
  if (answer.is_string() && converse_ != nullptr) {
    const std::string role = options_.message_role.empty() ? "role" : options_.message_role;
    const std::string content = options_.message_content.empty() ? "content" : options_.message_content;
    nlohmann::ordered_json question = nlohmann::ordered_json::array();
    if (prompt.is_string() && prompt != "") question.push_back({{role, "user"}, {content, prompt}});
    const nlohmann::ordered_json said = {{role, "assistant"}, {content, answer}};
    return encode_preferred(prompt.is_string() ? question : prompt, nlohmann::ordered_json::array({said}),
                            where, one, prompt_ends);
  }
  encode_answer(prompt, answer, where, one);
  if (options_.ready) {
    prompt_ends = prompt.is_null() ? 0 : prompt.size();
  } else if (answer.is_string()) {
    std::vector<int32_t> alone = options_.begin;
    if (prompt.is_string()) tokenize_(prompt.get_ref<const std::string&>(), alone);
    prompt_ends = parting(alone, one.ids);
  } else {
    int64_t answered = 0;
    const nlohmann::ordered_json none;
    if (prompt.is_array())
      for (const auto& message : read_conversation(prompt, none, where, message_names()).messages)
        if (message.value("role", "") == "assistant") ++answered;
    prompt_ends = begin_of_run(one.labels, answered);
  }
}

void ExampleEncoder::encode_preference(const Row& row, const std::function<std::string()>& where,
                                       Example& example) const {
  const auto cell = [&](const char* part) { return part_of(row, options_.parts, part); };
  const nlohmann::ordered_json chosen = answer_of(row, "chosen", where),
                               rejected = answer_of(row, "rejected", where);
  const bool told_twice =
      cell("prompt").is_string() && begins_with_question(chosen) && begins_with_question(rejected);
  const bool own_prompt = !cell("prompt").is_null() && !told_twice;
  const nlohmann::ordered_json prompt =
      own_prompt || options_.ready ? cell("prompt") : shared_prompt(chosen, rejected);
  std::array<Example, 2> both;
  std::array<size_t, 2> prompts{};
  for (size_t i = 0; i < 2; ++i) {
    const nlohmann::ordered_json& answer = i == 0 ? chosen : rejected;
    encode_preferred(prompt, own_prompt || options_.ready ? answer : behind(prompt, answer), where, both[i],
                     prompts[i]);
  }
  const bool same = both[0].ids == both[1].ids;
  if (options_.ready && !own_prompt) prompts[0] = prompts[1] = parting(both[0].ids, both[1].ids);
  if (options_.ready || chosen.is_string()) prompts[0] = prompts[1] = std::min(prompts[0], prompts[1]);
  bool learnt = !same;
  for (size_t i = 0; i < 2; ++i) {
    Example& one = both[i];
    one.labels = one.ids;
    for (size_t at = 0; at < std::min(prompts[i], one.ids.size()); ++at)
      one.labels[at] = i == 0 && options_.train_on_prompt ? kPromptLabel - one.ids[at] : kIgnoreLabel;
    const size_t first = example.ids.size();
    const bool fits = append(std::move(one), where, example);
    const auto answered = [](int32_t label) { return label >= 0; };
    learnt = learnt && fits &&
             std::any_of(example.labels.begin() + static_cast<std::ptrdiff_t>(first) + 1,
                         example.labels.end(), answered);
  }
  const bool whole = example.ends.size() == 2;
  if (whole && learnt) {
    const auto begin = example.ids.begin(), between = begin + example.ends[0];
    learnt = !std::equal(begin, between, between, example.ids.end());
  }
  example.targets = learnt ? 1 : 0;
  if (learnt) {
    example.values.assign(static_cast<size_t>(2 * targets_of(options_.task)), 0.0F);
    return;
  }
  example.ids.clear();
  example.labels.clear();
  example.ends.clear();
}

// As classifiers are trained elsewhere: what the tokenizer makes of the text, with no end of text behind it.

}  // namespace plimsoll
