#include "chat/chat_template.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/strings.h"
#include "chat/builtin_templates.h"
#include "chat/conversation.h"
#include "chat/learnt_parts.h"
#include "chat/tool_arguments.h"
#include "files/file.h"
#include "files/json.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kMaxConfigBytes = 64 << 20;
constexpr std::string_view kThinking = "enable_thinking";  // a variable of templates

json read_if_there(const fs::path& file, FileTexts& texts) {
  if (!fs::exists(file)) return json::object();
  json config = parse_json(texts.read(file, kMaxConfigBytes), file.string());
  if (!config.is_object())
    throw DamagedError(formatted("{}: is {}, not an object.", file.string(), describe_kind(config)));
  return config;
}

// "eos_token": "</s>" or {"content": "</s>", ...}; the first file that names a token decides.
std::map<std::string, std::string> special_tokens(const fs::path& folder, FileTexts& texts) {
  std::map<std::string, std::string> tokens;
  for (const char* file : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const json config = read_if_there(folder / file, texts);
    for (const char* name :
         {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
      const auto found = config.find(name);
      if (found == config.end() || tokens.contains(name)) continue;
      const json& text = found->is_object() && found->contains("content") ? found->at("content") : *found;
      if (text.is_string()) tokens[name] = text.get<std::string>();
    }
  }
  return tokens;
}

struct Sources {
  std::string plain;
  std::optional<std::string> with_tools;
  std::string where;
};

// "chat_template": a text, or [{"name": "default", "template": ...}, {"name": "tool_use", ...}].
std::optional<Sources> configured_sources(const fs::path& file, FileTexts& texts) {
  const json config = read_if_there(file, texts);
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return std::nullopt;
  const std::string where = file.string() + ": chat_template";
  if (found->is_string()) return Sources{found->get<std::string>(), std::nullopt, where};
  Sources sources{"", std::nullopt, where};
  bool has_default = false;
  for (const json& item : *found) {
    if (!item.is_object() || !item.contains("name") || !item.contains("template") ||
        !item["template"].is_string())
      throw DamagedError(where + ": a text, or a list of objects with name and template, is expected");
    if (item["name"] == "tool_use") sources.with_tools = item["template"].get<std::string>();
    if (item["name"] != "default") continue;
    sources.plain = item["template"].get<std::string>();
    has_default = true;
  }
  if (!has_default) throw UsageError(where + ": has no template of the name 'default'");
  return sources;
}

}  // namespace

ChatTemplate::ChatTemplate(Template rendering, std::optional<Template> with_tools,
                           std::map<std::string, std::string> tokens, std::optional<std::tm> now)
    : template_(std::move(rendering)),
      with_tools_(std::move(with_tools)),
      tokens_(std::move(tokens)),
      now_(now) {
  if (mentions("tool_calls")) arguments_ = wanted_arguments();
}

ChatTemplate ChatTemplate::builtin(std::string_view name, const fs::path& model_folder,
                                   std::optional<std::tm> now, const std::optional<std::string>& source,
                                   FileTexts* texts) {
  FileTexts own_texts;
  FileTexts& read = texts != nullptr ? *texts : own_texts;
  const BuiltinTemplate* found = find_builtin_template(name);
  if (found == nullptr) {
    std::vector<std::string> names;
    for (const BuiltinTemplate& known : builtin_templates()) names.emplace_back(known.name);
    throw UsageError(
        formatted("data.template: there is no template '{}'; there are {}", name, join(names, ", ")));
  }
  // Another tool's rules with a text of the recipe's own.
  const bool is_replaced = source && found->name.find('/') != std::string::npos;
  if (found->source.empty() || is_replaced) {
    auto own = of_folder(model_folder, now, source, &read);
    if (!own)
      throw UsageError(formatted(
          "{}: has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json), "
          "which data.template: {} means",
          model_folder.string(), name));
    own->rules_ = found->rules;
    return *std::move(own);
  }
  ChatTemplate chat(Template::parse(found->source, "template " + std::string(name)), std::nullopt,
                    special_tokens(model_folder, read), now);
  chat.rules_ = found->rules;
  return chat;
}

namespace {

std::string without_marks(std::string text) {
  for (const std::string_view mark : {kCut, kCutBare})
    for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at))
      text.erase(at, mark.size());
  return text;
}

}  // namespace

void ChatTemplate::begin_texts_with(const std::string& text) {
  tokens_["text_start"] = text;
  tokens_["text_cut"] = kCut;
}

void ChatTemplate::enable_thinking(bool thinks) {
  if (!mentions(kThinking))
    throw UsageError(formatted(
        "--thinking: {} does not read '{}', as templates of models that think do; leave the option out",
        template_.name(), kThinking));
  thinks_ = thinks;
}

Template ChatTemplate::published() const {
  if (rules_.tokens != TemplateRules::Tokens::pieces) return template_;
  std::string source = without_marks(template_.source());
  const auto start = tokens_.find("text_start");
  const std::string begin = start == tokens_.end() ? "" : start->second;
  for (const auto& [name, text] : {std::pair{std::string_view("text_start"), begin},
                                   std::pair{std::string_view("text_cut"), std::string()}})
    for (size_t at = source.find(name); at != std::string::npos && start != tokens_.end();
         at = source.find(name, at))
      source.replace(at, name.size(), nlohmann::ordered_json(text).dump());
  return Template::parse(source, template_.name());
}

std::optional<ChatTemplate> ChatTemplate::of_folder(const fs::path& folder, std::optional<std::tm> now,
                                                    const std::optional<std::string>& source,
                                                    FileTexts* texts) {
  FileTexts own_texts;
  FileTexts& read = texts != nullptr ? *texts : own_texts;
  const fs::path file = folder / "chat_template.jinja";
  const TemplateLimits limits;
  std::optional<Sources> sources;
  const bool is_text =
      source && (source->find("{%") != std::string::npos || source->find("{{") != std::string::npos);
  if (is_text)
    sources = Sources{*source, std::nullopt, "data.template_source"};
  else if (source)
    sources = Sources{read.read(*source, static_cast<int64_t>(limits.source_bytes)), std::nullopt, *source};
  else if (fs::exists(file))
    sources =
        Sources{read.read(file, static_cast<int64_t>(limits.source_bytes)), std::nullopt, file.string()};
  else
    sources = configured_sources(folder / "tokenizer_config.json", read);
  if (!sources) return std::nullopt;
  std::optional<Template> with_tools;
  if (sources->with_tools) with_tools = Template::parse(*sources->with_tools, sources->where + " tool_use");
  return ChatTemplate(Template::parse(sources->plain, sources->where), std::move(with_tools),
                      special_tokens(folder, read), now);
}

namespace {

// Thoughts come under several names; templates read reasoning_content, some thinking. As in transformers 5.
const nlohmann::ordered_json* thoughts_of(const nlohmann::ordered_json& message) {
  for (const char* name : {"reasoning_content", "thinking", "reasoning"})
    if (const auto found = message.find(name); found != message.end() && !found->is_null()) return &*found;
  return nullptr;
}

nlohmann::ordered_json with_reasoning(const nlohmann::ordered_json& messages) {
  nlohmann::ordered_json out = messages;
  for (nlohmann::ordered_json& message : out) {
    const nlohmann::ordered_json* const found = thoughts_of(message);
    if (found == nullptr) continue;
    const nlohmann::ordered_json thoughts = *found;
    if (!message.contains("thinking")) message["thinking"] = thoughts;
    message["reasoning_content"] = thoughts;
  }
  return out;
}

}  // namespace

Template::Output ChatTemplate::output(const Conversation& conversation, bool add_generation_prompt) const {
  using nlohmann::ordered_json;
  const ordered_json none = nullptr, prompt = add_generation_prompt, thinks = thinks_.value_or(false);
  std::vector<ordered_json> texts(tokens_.size());
  std::vector<Template::Variable> variables;
  for (size_t i = 0; const auto& [name, text] : tokens_) {
    texts[i] = text;
    variables.push_back({name, &texts[i++]});
  }
  ordered_json messages;
  const bool has_thoughts = std::ranges::any_of(conversation.messages, thoughts_of);
  if (has_thoughts) messages = with_reasoning(conversation.messages);
  const bool parses = arguments_ == Arguments::objects && has_argument_texts(conversation.messages);
  if (parses) messages = with_argument_objects(has_thoughts ? messages : conversation.messages);
  variables.insert(variables.end(),
                   {{"messages", has_thoughts || parses ? &messages : &conversation.messages},
                    {"tools", &conversation.tools},
                    {"documents", &none},
                    {"add_generation_prompt", &prompt}});
  if (thinks_) variables.push_back({kThinking, &thinks});
  return template_of(conversation).render(variables, now_);
}

const Template& ChatTemplate::template_of(const Conversation& conversation) const {
  return with_tools_ && !conversation.tools.is_null() ? *with_tools_ : template_;
}

// By what it makes of a call: a text that comes out as it is stays one.
ChatTemplate::Arguments ChatTemplate::wanted_arguments() const {
  constexpr std::string_view kText = R"({"plimsoll": 1})";
  const auto printed = [&](const nlohmann::ordered_json& arguments) -> std::optional<std::string> {
    Conversation calls;
    calls.messages = {{{"role", "user"}, {"content", "a"}},
                      {{"role", "assistant"},
                       {"content", ""},
                       {"tool_calls",
                        {{{"id", "call00001"},
                          {"type", "function"},
                          {"function", {{"name", "b"}, {"arguments", arguments}}}}}}}};
    try {
      return output(calls, false).text;
    } catch (const TemplateError&) {
      return std::nullopt;
    }
  };
  const auto text = printed(std::string(kText));
  if (text && text->find(kText) != std::string::npos) return Arguments::as_given;
  return printed(nlohmann::ordered_json::parse(kText)) ? Arguments::objects : Arguments::as_given;
}

bool ChatTemplate::mentions(std::string_view key) const {
  return template_.source().find(key) != std::string::npos ||
         (with_tools_ && with_tools_->source().find(key) != std::string::npos);
}

bool ChatTemplate::mentions(std::string_view key, const Conversation& conversation) const {
  return template_of(conversation).source().find(key) != std::string::npos;
}

std::string ChatTemplate::render(const Conversation& conversation, bool add_generation_prompt) const {
  return without_marks(output(conversation, add_generation_prompt).text);
}

TrainingText ChatTemplate::render_for_training(const Conversation& conversation) const {
  const Template& rendering = template_of(conversation);
  const auto render_part = [this](const Conversation& part, bool prompt) {
    return output(part, prompt).text;
  };
  if (rules_.answers == TemplateRules::Answers::contents)
    return find_contents(conversation, render_part, rendering.name());
  if (rendering.marks_generation()) {
    Template::Output marked = output(conversation, false);
    return {std::move(marked.text),
            learnt_blocks(conversation, std::move(marked.generated), rendering.name()), true};
  }
  return find_learnt_parts(conversation, render_part, rendering.name());
}

}  // namespace plimsoll
