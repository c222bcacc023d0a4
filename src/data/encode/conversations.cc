#include "data/encode/conversations.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "chat/conversation.h"
#include "data/encode/conversation_pieces.h"
#include "data/encode/messages.h"
#include "data/files/cell.h"

namespace plimsoll {
namespace {

// The most blanks that a token takes along; a bound, so that time stays linear.
constexpr size_t kMostBlanks = 64;

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

bool is_blank_token(const Tokenizer& tokenizer, int32_t id) {
  std::string bytes;
  tokenizer.append_token_bytes(id, false, bytes);
  return std::all_of(bytes.begin(), bytes.end(), is_space);
}

// The number of tokens before `byte` of a text that a normaliser changed: as many as the text before it has
// by itself, as far as they agree with the whole's.
size_t tokens_before(const Tokenizer& tokenizer, std::string_view text, size_t byte,
                     const std::vector<int32_t>& ids) {
  const std::vector<int32_t> before = tokenizer.encode(text.substr(0, byte), false);
  const size_t most = std::min(before.size(), ids.size());
  return static_cast<size_t>(
      std::mismatch(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(most), ids.begin()).first -
      before.begin());
}

struct TokenRange {
  size_t begin = 0;
  size_t end = 0;
};

TokenRange tokens_of(const Tokenizer& tokenizer, std::string_view text, const ByteSpan& span,
                     const std::vector<int32_t>& ids, const std::optional<std::vector<size_t>>& starts) {
  if (span.begin == span.end) return {0, 0};
  if (!starts) {
    const size_t begin = tokens_before(tokenizer, text, span.begin, ids);
    return {begin, std::max(begin, tokens_before(tokenizer, text, span.end, ids))};
  }
  // Token i is [starts[i], starts[i + 1]).
  const auto first = std::upper_bound(starts->begin(), starts->end(), span.begin) - 1;
  const auto last = std::lower_bound(first, starts->end() - 1, span.end);
  return {static_cast<size_t>(first - starts->begin()), static_cast<size_t>(last - starts->begin())};
}

// From the content's last token over blanks to the special token that ends the turn, where there is one.
size_t with_end_token(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, size_t end) {
  size_t next = end;
  while (next < ids.size() && !tokenizer.is_special(ids[next]) && is_blank_token(tokenizer, ids[next]))
    ++next;
  return next < ids.size() && tokenizer.is_special(ids[next]) ? next + 1 : end;
}

// Without the blanks behind a special token at the end.
size_t without_blanks(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, TokenRange range) {
  size_t end = range.end;
  while (end > range.begin && !tokenizer.is_special(ids[end - 1]) && is_blank_token(tokenizer, ids[end - 1]))
    --end;
  return end > range.begin && tokenizer.is_special(ids[end - 1]) ? end : range.end;
}

}  // namespace

std::optional<std::tm> date_of(const std::optional<std::string>& date) {
  if (!date) return std::nullopt;
  const std::vector<std::string> parts = split(*date, '-');
  std::tm time{};
  time.tm_year = std::stoi(parts[0]) - 1900;
  time.tm_mon = std::stoi(parts[1]) - 1;
  time.tm_mday = std::stoi(parts[2]);
  time.tm_hour = 12;
  time.tm_isdst = -1;
  std::mktime(&time);  // the days of week and year
  return time;
}

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm time{};
  localtime_r(&now, &time);
  return time;
}

std::optional<ChatTemplate> chat_template_of(const TemplateChoice& choice, RowFormat format) {
  const bool messages = format == RowFormat::messages;
  const bool alpaca = format == RowFormat::alpaca;
  if (!messages && !alpaca && format != RowFormat::prompt_response) return std::nullopt;
  const auto now = date_of(choice.date);
  const std::string& name = choice.name;
  if (name == "plain" && messages)
    throw UsageError(
        "data.template: plain has no place for messages with roles; name a template such as chatml, or "
        "auto for the model's own");
  // TRL leaves prompts and completions as they are.
  if (name == "plain" || (name == "trl" && !messages)) return std::nullopt;
  // 0.9.5, data/template.py:630: the tokenizer's own, else the template `empty`.
  if (name == "llama-factory") {
    auto own = ChatTemplate::of_folder(choice.model, now, choice.source, choice.texts);
    return own ? std::move(own)
               : ChatTemplate::builtin("llama-factory/empty", choice.model, now, std::nullopt, choice.texts);
  }
  if (name != "auto" && name != "trl")
    return ChatTemplate::builtin(name, choice.model, now, choice.source, choice.texts);
  auto own = ChatTemplate::of_folder(choice.model, now, choice.source, choice.texts);
  if (!own && alpaca) return ChatTemplate::builtin("alpaca", choice.model, now, std::nullopt, choice.texts);
  if (!own && messages)
    throw UsageError(
        choice.model.string() +
        ": has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json), which "
        "rows of messages need; name one of chatml, llama2, llama3, mistral and alpaca: --set "
        "data.template=chatml");
  return own;
}

std::optional<std::vector<size_t>> token_starts(const Tokenizer& tokenizer, std::string_view text,
                                                const std::vector<int32_t>& ids) {
  std::vector<size_t> starts = tokenizer.starts_by_lengths(text, ids);
  if (!starts.empty()) return starts;
  starts.reserve(ids.size() + 1);
  size_t at = 0;
  std::string bytes;
  for (const int32_t id : ids) {
    starts.push_back(at);
    if (const size_t taken = tokenizer.token_bytes_in(id, text.substr(at))) {
      at += taken;
      continue;
    }
    bytes.clear();
    tokenizer.append_token_bytes(id, false, bytes);
    for (const char c : bytes) {
      // A token may take neighbouring blanks along, and a space may be put before a word.
      size_t next = at;
      const size_t end = std::min(text.size(), at + kMostBlanks);
      while (next < end && text[next] != c && is_space(text[next])) ++next;
      if (next < end && text[next] == c)
        at = next + 1;
      else if (c != ' ')
        return std::nullopt;
    }
  }
  while (at < text.size() && is_space(text[at])) ++at;
  if (at != text.size()) return std::nullopt;
  starts.push_back(at);
  return starts;
}

std::vector<bool> learnt_tokens(const Tokenizer& tokenizer, const TrainingText& rendered,
                                const std::vector<int32_t>& ids) {
  std::vector<bool> learnt(ids.size(), false);
  const auto starts = token_starts(tokenizer, rendered.text, ids);
  for (const ByteSpan& span : rendered.learnt) {
    TokenRange range = tokens_of(tokenizer, rendered.text, span, ids, starts);
    if (range.begin == range.end) continue;
    range.end =
        rendered.to_end ? without_blanks(tokenizer, ids, range) : with_end_token(tokenizer, ids, range.end);
    for (size_t i = range.begin; i < range.end; ++i) learnt[i] = true;
  }
  return learnt;
}

namespace {

// The contents of the answers, and of the tokens behind each the end-of-text token and the one that ends a
// turn, where they are not far: the tokens that axolotl trains on (0.19.0,
// prompt_strategies/chat_template.py, _tokenize_single_prompt).
std::vector<bool> learnt_contents(const Tokenizer& tokenizer, const TrainingText& rendered,
                                  const std::vector<int32_t>& ids,
                                  std::initializer_list<std::optional<int32_t>> ends) {
  constexpr size_t kFarthest = 3;
  std::vector<bool> learnt(ids.size(), false);
  const auto starts = token_starts(tokenizer, rendered.text, ids);
  for (const ByteSpan& span : rendered.learnt) {
    const TokenRange range = tokens_of(tokenizer, rendered.text, span, ids, starts);
    for (size_t i = range.begin; i < range.end; ++i) learnt[i] = true;
    if (range.begin == range.end) continue;
    const auto first = ids.begin() + static_cast<std::ptrdiff_t>(range.end);
    for (const auto& token : ends) {
      const auto end = std::find(first, ids.end(), token.value_or(-1));
      if (end != ids.end() && end - first <= static_cast<std::ptrdiff_t>(kFarthest))
        learnt[static_cast<size_t>(end - ids.begin())] = true;
    }
  }
  return learnt;
}

void label(const Tokenizer& tokenizer, const TrainingText& rendered, const TemplateRules& rules,
           const ConversationOptions& options, Example& example) {
  const std::vector<bool> learnt =
      rules.answers == TemplateRules::Answers::contents
          ? learnt_contents(tokenizer, rendered, example.ids, {options.eos, options.end_of_turn})
          : learnt_tokens(tokenizer, rendered, example.ids);
  example.labels.reserve(learnt.size());
  for (size_t i = 0; i < learnt.size(); ++i)
    example.labels.push_back(learnt[i] ? example.ids[i] : kIgnoreLabel);
}

// Only answers can be marked for training one by one: other marks of turns are refused.
void require_honoured(const Conversation& conversation, bool train_on_prompt, const Where& where) {
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    const auto& message = conversation.messages[i];
    const auto said = learnt_by_itself(message);
    if (!said || *said == (train_on_prompt || message["role"] == "assistant")) continue;
    const std::string here = formatted("{}: message {}", where(), i + 1);
    if (train_on_prompt)
      throw UsageError(here +
                       " is marked as not trained, but data.train_on_prompt trains on whole conversations "
                       "(--set data.train_on_prompt=false trains on the other answers)");
    if (*said)
      throw UsageError(
          formatted("{} is marked as trained, but its role is {}: only the assistant's messages are (--set "
                    "data.train_on_prompt=true trains on whole conversations)",
                    here, message["role"].dump()));
  }
}

// A conversation whose answers were cut off teaches nothing, like a text that is cut: that is no damage.
void require_targets(const Example& example, const Where& where) {
  if (example.truncated()) return;
  const auto ignored = std::count(example.labels.begin(), example.labels.end(), kIgnoreLabel);
  if (ignored != static_cast<std::ptrdiff_t>(example.labels.size())) return;
  throw DamagedError(where() +
                     ": the conversation has nothing to learn: no message of the role assistant leaves a "
                     "token (data.train_on_prompt trains on all of it).");
}

}  // namespace

void require_printed_calls(const Conversation& conversation, const ChatTemplate& chat, int64_t reading,
                           const Where& where) {
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    const auto& message = conversation.messages[i];
    const auto content = message.find("content");
    const bool has_content = content != message.end() && !content->is_null();
    if (has_content && reading < kCallsReading) continue;
    for (const char* key : {"tool_calls", "function_call"})
      if (const auto calls = message.find(key);
          calls != message.end() && !calls->empty() && !calls->is_null() && !chat.mentions(key, conversation))
        throw DamagedError(
            formatted("{}: message {}: has {}, and the chat template prints no {}: name one that does "
                      "(data.template, data.template_source).",
                      where(), i + 1, key, key));
  }
}

std::vector<int32_t> text_start(const Tokenizer& tokenizer, std::optional<int32_t> eos) {
  std::vector<int32_t> ids = tokenizer.encode("", true);
  while (!ids.empty() && eos && ids.back() == *eos) ids.pop_back();
  return ids;
}

void begin_texts(const Tokenizer& tokenizer, std::optional<int32_t> eos, ChatTemplate& chat) {
  if (chat.rules().tokens != TemplateRules::Tokens::pieces) return;
  std::string start;
  for (const int32_t id : text_start(tokenizer, eos)) start += tokenizer.token(id);
  chat.begin_texts_with(start);
}

EncodeConversation conversation_encoder(std::shared_ptr<const Tokenizer> tokenizer, ChatTemplate chat,
                                        const ConversationOptions& options) {
  begin_texts(*tokenizer, options.eos, chat);
  if (options.reading == kFirstReading) chat.keep_argument_texts();
  return [tokenizer = std::move(tokenizer), chat = std::move(chat), options](
             const Conversation& conversation, const Where& where, Example& example) {
    const TemplateRules& rules = chat.rules();
    const bool pieces = rules.tokens == TemplateRules::Tokens::pieces;
    // Messages that came as a text show only here how many values they are.
    example.size = std::max(example.size, row_size(conversation.messages) + row_size(conversation.tools));
    require_printed_calls(conversation, chat, options.reading, where);
    if (options.reading > kFirstReading) require_honoured(conversation, options.train_on_prompt, where);
    try {
      const TrainingText rendered = options.train_on_prompt && !pieces
                                        ? TrainingText{chat.render(conversation, false), {}, true}
                                        : chat.render_for_training(conversation);
      if (pieces) {
        encode_pieces(*tokenizer, rendered, {rules, options.train_on_prompt, options.max_length, options.eos},
                      example);
        return require_targets(example, where);
      }
      // Twice, as the trained parts may be found by tokens of a part of it.
      example.size = std::max(example.size, 2 * std::ssize(rendered.text));
      tokenizer->encode_into(rendered.text, false, example.ids);
      if (options.train_on_prompt) {
        example.labels = example.ids;
        return;
      }
      label(*tokenizer, rendered, rules, options, example);
      require_targets(example, where);
    } catch (const TemplateError& error) {
      throw DamagedError(formatted("{}: {}", where(), error.what()));
    }
  };
}

std::optional<int32_t> end_of_turn(const Tokenizer& tokenizer, const ChatTemplate& chat) {
  TrainingText rendered;
  try {
    rendered = chat.render_for_training(conversation_of("a", "b"));
  } catch (const TemplateError&) {
    return std::nullopt;  // its conversations look different; it does not show their end
  }
  const std::vector<int32_t> ids = tokenizer.encode(rendered.text, false);
  const std::vector<bool> learnt = learnt_tokens(tokenizer, rendered, ids);
  for (size_t i = ids.size(); i-- > 0;)
    if (learnt[i]) return tokenizer.is_special(ids[i]) ? std::optional(ids[i]) : std::nullopt;
  return std::nullopt;
}

}  // namespace plimsoll
