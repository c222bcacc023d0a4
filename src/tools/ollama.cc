#include "tools/ollama.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "chat/conversation.h"

namespace plimsoll {
namespace {

using Messages = std::vector<TurnTemplate::Message>;

// Contents that no template has of its own.
constexpr const char *kSystem = "Qzsystem", *kFirst = "Qzfirst", *kAnswer = "Qzanswer", *kSecond = "Qzsecond";

std::optional<std::string> rendered(const ChatTemplate& chat, const Messages& messages,
                                    const std::string& begin) {
  Conversation conversation;
  for (const auto& [role, content] : messages)
    conversation.messages.push_back({{"role", role}, {"content", content}});
  try {
    const std::string text = chat.render(conversation, true);
    return !begin.empty() && text.starts_with(begin) ? text.substr(begin.size()) : text;
  } catch (const Error&) {
    return std::nullopt;  // raise_exception: this template has no such conversations
  }
}

// The parts of a text between contents, which stand in it once each and in this order.
std::optional<std::vector<std::string>> parts_between(const std::string& text,
                                                      const std::vector<std::string>& contents) {
  std::vector<std::string> parts;
  size_t at = 0;
  for (const std::string& content : contents) {
    const size_t found = text.find(content, at);
    if (found == std::string::npos) return std::nullopt;
    parts.push_back(text.substr(at, found - at));
    at = found + content.size();
    if (text.find(content, at) != std::string::npos) return std::nullopt;
  }
  parts.push_back(text.substr(at));
  return parts;
}

// Other conversations than those that the texts were found by.
std::vector<Messages> probes(bool system) {
  const std::vector<Messages> all = {
      {{"user", "Which city is the capital of France?"}},
      {{"user", "one line\nand another"}, {"assistant", "yes: two"}, {"user", "why"}},
      {{"user", "a"}, {"assistant", "b"}, {"user", "c"}, {"assistant", "d"}, {"user", "e"}},
      {{"system", "You answer briefly."}, {"user", "Hello"}},
      {{"system", "S"}, {"user", "a"}, {"assistant", "b"}, {"user", "c"}, {"assistant", "d"}, {"user", "e"}}};
  return {all.begin(), system ? all.end() : all.begin() + 3};
}

constexpr const char* kQuotes = R"(""")";

bool fits_go(const TurnTemplate& turns) {
  for (const std::string& text : {turns.start, turns.start_system, turns.after_system, turns.to_answer,
                                  turns.answer_start, turns.to_next})
    if (text.find("{{") != std::string::npos || text.find(kQuotes) != std::string::npos) return false;
  return true;
}

}  // namespace

std::string TurnTemplate::render(const Messages& messages) const {
  std::string text;
  for (size_t i = 0; i < messages.size(); ++i) {
    const auto& [role, content] = messages[i];
    const bool behind_system = i > 0 && messages[i - 1].role == "system";
    if (role == "system") text += start_system + content + after_system;
    if (role == "user") text += (behind_system ? "" : i == 0 ? start : to_next) + content + to_answer;
    if (role == "assistant") text += answer_start + content;
  }
  return text;
}

std::string TurnTemplate::in_go() const {
  std::string text = "{{ range $i, $m := .Messages }}";
  text += "{{ if eq $m.Role \"system\" }}";
  if (takes_system) text += formatted("{}{{{{ $m.Content }}}}{}", start_system, after_system);
  text += formatted("{{{{ else if eq $m.Role \"user\" }}}}{{{{ if eq $i 0 }}}}{}", start);
  // The message before it is the system's only where that is the first.
  text +=
      formatted("{{{{ else if not (and (eq $i 1) (eq (index $.Messages 0).Role \"system\")) }}}}{}", to_next);
  if (!takes_system) text += formatted("{{{{ else }}}}{}", start);
  text += formatted("{{{{ end }}}}{{{{ $m.Content }}}}{}", to_answer);
  return text +
         formatted(
             "{{{{ else if eq $m.Role \"assistant\" }}}}{}{{{{ $m.Content }}}}{{{{ end }}}}{{{{ end }}}}",
             answer_start);
}

TurnsFound find_turns(const ChatTemplate& chat, const std::string& begin) {
  if (chat.mentions("strftime_now") || chat.mentions("date_string")) return {{}, "prints a date"};
  const auto plain = rendered(chat, {{"user", kFirst}, {"assistant", kAnswer}, {"user", kSecond}}, begin);
  const auto between = plain ? parts_between(*plain, {kFirst, kAnswer, kSecond}) : std::nullopt;
  if (!between || !(*between)[1].starts_with(between->back()))
    return {{}, "does not put the messages one after the other"};
  TurnTemplate turns;
  turns.start = (*between)[0];
  turns.to_answer = between->back();
  turns.answer_start = (*between)[1].substr(turns.to_answer.size());
  turns.to_next = (*between)[2];
  if (const auto with = rendered(chat, {{"system", kSystem}, {"user", kFirst}}, begin))
    if (const auto around = parts_between(*with, {kSystem, kFirst})) {
      turns.start_system = (*around)[0];
      turns.after_system = (*around)[1];
      turns.takes_system = true;
    }
  for (const Messages& messages : probes(turns.takes_system))
    if (rendered(chat, messages, begin) != turns.render(messages))
      return {{}, "changes what it puts around a message with its place or its text"};
  if (!fits_go(turns)) return {{}, "has marks of Go's template language in its texts"};
  return {turns, ""};
}

std::string modelfile_text(const ModelfileFacts& facts) {
  std::string text = formatted("FROM ./{}\n", facts.file);
  if (facts.go_template) text += formatted("TEMPLATE {}{}{}\n", kQuotes, *facts.go_template, kQuotes);
  if (facts.context > 0) text += formatted("PARAMETER num_ctx {}\n", facts.context);
  for (const std::string& stop : facts.stops) {
    if (stop.empty() || stop.find_first_of("\"\n") != std::string::npos)
      throw UsageError(formatted("export: a Modelfile cannot hold the end token {}; use --to gguf",
                                 nlohmann::json(stop).dump()));
    text += formatted("PARAMETER stop \"{}\"\n", stop);
  }
  return text;
}

ModelfileFacts read_modelfile(const std::string& text) {
  ModelfileFacts facts;
  const std::string opening = formatted("\nTEMPLATE {}", kQuotes);
  const size_t begin = text.find(opening);
  size_t from = 0;
  if (begin != std::string::npos) {
    const size_t end = text.find(kQuotes, begin + opening.size());
    facts.go_template = text.substr(begin + opening.size(), end - begin - opening.size());
    from = end;
  }
  constexpr std::string_view kStop = "\nPARAMETER stop \"";
  for (size_t at = text.find(kStop, from); at != std::string::npos; at = text.find(kStop, at + 1)) {
    const size_t start = at + kStop.size();
    facts.stops.push_back(text.substr(start, text.find('"', start) - start));
  }
  return facts;
}

}  // namespace plimsoll
