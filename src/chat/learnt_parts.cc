#include "chat/learnt_parts.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "base/format.h"
#include "chat/conversation.h"
#include "unicode/utf8.h"

namespace plimsoll {
namespace {

using nlohmann::ordered_json;

// A code point that no text holds (U+FDD0 is no character).
constexpr std::string_view kMark = "\uFDD0";

bool is_assistant(const ordered_json& message) {
  const auto role = message.find("role");
  return role != message.end() && *role == "assistant";
}

std::vector<size_t> assistants(const Conversation& conversation) {
  std::vector<size_t> indices;
  for (size_t i = 0; i < conversation.messages.size(); ++i)
    if (is_assistant(conversation.messages[i])) indices.push_back(i);
  return indices;
}

Conversation first_messages(const Conversation& conversation, size_t count) {
  Conversation part{ordered_json::array(), conversation.tools};
  for (size_t i = 0; i < count; ++i) part.messages.push_back(conversation.messages[i]);
  return part;
}

[[noreturn]] void refuse(const std::string& name, size_t index, const std::string& why) {
  throw TemplateError(formatted(
      "{}: what the assistant says in message {} cannot be separated from the rest: {}. Use a template "
      "that marks it with {{% generation %}} ... {{% endgeneration %}}",
      name, index + 1, why));
}

// The text is rendered once or twice for each answer: that takes the square of a conversation's length.
void require_few(const std::vector<size_t>& turns, const std::string& text, const std::string& name) {
  // The limit for all renderings; those of 1,000 answers in 1 MiB are 1 GiB.
  constexpr size_t kMostBytes = size_t{4} << 30;
  if (turns.size() <= kMostBytes / (text.size() + 1)) return;
  throw TemplateError(formatted(
      "{}: {} answers in a text of {} bytes are too many to tell from the rest one by one. Use a "
      "template that marks them with {{% generation %}} ... {{% endgeneration %}}, or split the conversation",
      name, turns.size(), text.size()));
}

// The place that separates a content from the white space at its end, which templates like to trim.
size_t place_of_mark(const std::string& content, bool behind) {
  constexpr const char* kWhite = " \t\r\n";
  const size_t at = behind ? content.find_last_not_of(kWhite) : content.find_first_not_of(kWhite);
  return at == std::string::npos ? 0 : at + (behind ? 1 : 0);
}

// The places at which the contents begin, or end, found by rendering once more with a mark before or behind each;
// nothing where the marks change the text.
std::optional<std::vector<size_t>> content_places(const Conversation& conversation,
                                                  const std::vector<size_t>& turns,
                                                  const RenderConversation& render, const std::string& whole,
                                                  bool behind) {
  if (whole.find(kMark) != std::string::npos) return std::nullopt;
  Conversation marked = conversation;
  for (const size_t turn : turns) {
    auto content = marked.messages[turn].find("content");
    if (content == marked.messages[turn].end() || !content->is_string()) return std::nullopt;
    auto text = content->get<std::string>();
    text.insert(place_of_mark(text, behind), kMark);
    *content = text;
  }
  const std::string with_marks = render(marked, false);
  std::string without;
  std::vector<size_t> ends;
  for (size_t at = 0; at < with_marks.size();) {
    const size_t mark = with_marks.find(kMark, at);
    without += with_marks.substr(at, mark - at);
    if (mark == std::string::npos) break;
    ends.push_back(without.size());
    at = mark + kMark.size();
  }
  if (without != whole || ends.size() != turns.size()) return std::nullopt;
  return ends;
}

// The conversation before the answer, with the prompt for it. Templates that look at the first message cannot
// render what is before an answer that is one: that ends where the content comes out, if it has no more
// parts.
std::string before_answer(const Conversation& conversation, size_t turn, const RenderConversation& render,
                          const std::string& whole) {
  if (turn > 0) return render(first_messages(conversation, turn), true);
  try {
    return render(first_messages(conversation, 0), true);
  } catch (const TemplateError&) {
    for (const auto& [key, value] : conversation.messages[0].items())
      if (key != "role" && key != "content" && key != "weight" && !value.is_null()) throw;
    const auto begins = content_places(conversation, {0}, render, whole, false);
    if (!begins) throw;
    return whole.substr(0, begins->front());
  }
}

}  // namespace

bool is_learnt(const ordered_json& message) {
  const auto weight = message.find("weight");
  const bool excluded = weight != message.end() && weight->is_number() && weight->get<double>() == 0.0;
  return is_assistant(message) && !excluded;
}

TrainingText find_learnt_parts(const Conversation& conversation, const RenderConversation& render,
                               const std::string& name) {
  TrainingText result{render(conversation, false), {}, true};
  const std::vector<size_t> turns = assistants(conversation);
  require_few(turns, result.text, name);
  std::vector<ByteSpan> spans;
  for (const size_t turn : turns) {
    const std::string before = before_answer(conversation, turn, render, result.text);
    if (!result.text.starts_with(before)) refuse(name, turn, "the text before it changes with what follows");
    spans.push_back({before.size(), 0});
  }
  for (size_t i = 0; i < turns.size() && result.to_end; ++i) {
    const std::string with = render(first_messages(conversation, turns[i] + 1), false);
    result.to_end = result.text.starts_with(with) && with.size() > spans[i].begin;
    spans[i].end = with.size();
  }
  if (!result.to_end) {
    const auto ends = content_places(conversation, turns, render, result.text, true);
    if (!ends)
      refuse(name, turns.front(), "the template shows an earlier answer in another way than the last one");
    for (size_t i = 0; i < turns.size(); ++i) spans[i].end = (*ends)[i];
  }
  for (size_t i = 0; i < turns.size(); ++i) {
    if (spans[i].end < spans[i].begin || (i > 0 && spans[i].begin < spans[i - 1].end))
      refuse(name, turns[i], "the answers overlap");
    if (is_learnt(conversation.messages[turns[i]])) result.learnt.push_back(spans[i]);
  }
  return result;
}

TrainingText find_contents(const Conversation& conversation, const RenderConversation& render,
                           const std::string& name) {
  TrainingText result{render(conversation, false), {}, false};
  const std::vector<size_t> turns = assistants(conversation);
  require_few(turns, result.text, name);
  for (const size_t turn : turns) {
    if (!is_learnt(conversation.messages[turn])) continue;
    Conversation marked = conversation;
    marked.messages[turn]["content"] = kMark;
    const std::string with_mark = render(marked, false);
    const size_t begin = with_mark.find(kMark);
    if (begin == std::string::npos || with_mark.find(kMark, begin + 1) != std::string::npos)
      refuse(name, turn, "its content does not come out in one place");
    const std::string_view whole = result.text;
    const std::string_view after = std::string_view(with_mark).substr(begin + kMark.size());
    if (whole.size() < begin + after.size() || !whole.ends_with(after) ||
        whole.substr(0, begin) != std::string_view(with_mark).substr(0, begin))
      refuse(name, turn, "the text around it changes with its content");
    if (whole.size() > begin + after.size()) result.learnt.push_back({begin, whole.size() - after.size()});
  }
  return result;
}

std::vector<ByteSpan> learnt_blocks(const Conversation& conversation, std::vector<ByteSpan> blocks,
                                    const std::string& name) {
  const std::vector<size_t> turns = assistants(conversation);
  std::vector<ByteSpan> learnt;
  for (size_t i = 0; i < turns.size(); ++i) {
    if (is_learnt(conversation.messages[turns[i]])) {
      if (i < blocks.size()) learnt.push_back(blocks[i]);
    } else if (blocks.size() != turns.size()) {
      refuse(name, turns[i],
             formatted("its weight is 0, and the template marks {} parts for {} answers", blocks.size(),
                       turns.size()));
    }
  }
  return blocks.size() == turns.size() ? learnt : blocks;
}

}  // namespace plimsoll
