// A prompt and two answers, of which one is to be preferred: log-probabilities of both are compared.
#include <algorithm>
#include <array>

#include "data/encode/dialogue.h"
#include "data/encode/row_kinds.h"
#include "data/files/cell.h"
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

class PreferenceEncoder : public RowEncoder {
 public:
  explicit PreferenceEncoder(const PreferenceRows& rows) : rows_(rows), answers_(rows.answers) {}

  void encode(const Row& row, const Where& where, Example& example) const override {
    const nlohmann::ordered_json chosen = answers_.answer(row, "chosen", where),
                                 rejected = answers_.answer(row, "rejected", where);
    const nlohmann::ordered_json given = answers_.prompt(row, where);
    const bool told_twice =
        given.is_string() && begins_with_question(chosen) && begins_with_question(rejected);
    const bool own_prompt = !given.is_null() && !told_twice;
    const nlohmann::ordered_json prompt = own_prompt || ready() ? given : shared_prompt(chosen, rejected);
    std::array<Example, 2> both;
    std::array<size_t, 2> prompts{};
    for (size_t i = 0; i < 2; ++i) {
      const nlohmann::ordered_json& answer = i == 0 ? chosen : rejected;
      encode_answer(row, prompt, own_prompt || ready() ? answer : behind(prompt, answer), where, both[i],
                    prompts[i]);
    }
    if (ready() && !own_prompt) prompts[0] = prompts[1] = parting(both[0].ids, both[1].ids);
    if (ready() || chosen.is_string()) prompts[0] = prompts[1] = std::min(prompts[0], prompts[1]);
    if (!append_both(std::move(both), prompts, where, example)) return leave_out(example);
    example.targets = 1;
    example.values.assign(static_cast<size_t>(rows_.values), 0.0F);
  }

 private:
  [[nodiscard]] bool ready() const { return rows_.answers.columns.ready; }

  // As TRL does it: a text's answer begins where the tokens of prompt and answer part from those of the
  // prompt alone, one of messages behind the messages that it answers. `prompt_ends` becomes where the answer
  // begins.
  void encode_answer(const Row& row, const nlohmann::ordered_json& prompt,
                     const nlohmann::ordered_json& answer, const Where& where, Example& one,
                     size_t& prompt_ends) const {
    if (answer.is_string() && rows_.answers.converse != nullptr) {
      nlohmann::ordered_json question = nlohmann::ordered_json::array();
      if (prompt.is_string() && prompt != "") question.push_back(answers_.message("user", prompt));
      return encode_answer(row, prompt.is_string() ? question : prompt,
                           nlohmann::ordered_json::array({answers_.message("assistant", answer)}), where, one,
                           prompt_ends);
    }
    answers_.encode(row, prompt, answer, where, one);
    if (ready()) {
      prompt_ends = prompt.is_null() ? 0 : prompt.size();
    } else if (answer.is_string()) {
      std::vector<int32_t> alone = rows_.answers.texts.begin;
      if (prompt.is_string()) rows_.answers.texts.tokenize(prompt.get_ref<const std::string&>(), alone);
      prompt_ends = parting(alone, one.ids);
    } else {
      int64_t answered = 0;
      const nlohmann::ordered_json none;
      if (prompt.is_array())
        for (const auto& message : read_conversation(prompt, none, where, answers_.names()).messages)
          if (message.value("role", "") == "assistant") ++answered;
      prompt_ends = begin_of_run(one.labels, answered);
    }
  }

  // False where they teach nothing: they are the same, one is left out, or has no token of its answer.
  bool append_both(std::array<Example, 2> both, const std::array<size_t, 2>& prompts, const Where& where,
                   Example& example) const {
    bool learnt = both[0].ids != both[1].ids;
    for (size_t i = 0; i < 2; ++i) {
      Example& one = both[i];
      one.labels = one.ids;
      for (size_t at = 0; at < std::min(prompts[i], one.ids.size()); ++at)
        one.labels[at] = i == 0 && rows_.train_on_prompt ? kPromptLabel - one.ids[at] : kIgnoreLabel;
      if (rows_.hides_last && !one.labels.empty()) one.labels.back() = kIgnoreLabel;
      const size_t first = example.ids.size();
      const bool fits = append_sequence(rows_.sequences, std::move(one), where, example);
      const auto answered = [](int32_t label) { return label >= 0; };
      learnt = learnt && fits &&
               std::any_of(example.labels.begin() + static_cast<std::ptrdiff_t>(first) + 1,
                           example.labels.end(), answered);
    }
    if (!learnt || example.ends.size() != 2) return learnt;
    const auto begin = example.ids.begin(), between = begin + example.ends[0];
    return !std::equal(begin, between, between, example.ids.end());
  }

  PreferenceRows rows_;
  AnswerEncoder answers_;
};

}  // namespace

MadeEncoder preference_rows(const PreferenceRows& rows) { return std::make_unique<PreferenceEncoder>(rows); }

}  // namespace plimsoll
