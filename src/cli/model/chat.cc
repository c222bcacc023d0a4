#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/print.h"
#include "base/strings.h"
#include "base/units.h"
#include "chat/conversation.h"
#include "cli/commands.h"
#include "cli/model/answer_arguments.h"
#include "cli/model/chat_terminal.h"
#include "cpu/threads.h"
#include "files/atomic.h"
#include "report/progress.h"
#include "unicode/utf8.h"

namespace plimsoll {
namespace {

// Long enough for a conversation, small enough for the caches of most models.
constexpr int64_t kUsualContext = 4096;
constexpr int64_t kUsualAnswer = 512;

constexpr const char* kHelp =
    "/reset        forget the conversation\n/undo         forget the last question and its answer\n"
    "/again        another answer to the last question\n/system TEXT  the system message from now on; "
    "without a text: none\n/save FILE    write the conversation as one JSON line, a row for training\n"
    "/exit         the end, as Ctrl-D\nA line that ends with \\ continues on the next; // begins a message "
    "with a /.\nCtrl-C ends an answer.";

using Messages = nlohmann::ordered_json;

Messages message(const char* role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

class Chat {
 public:
  // `end`: of a source, where an encoder reads it.
  Chat(const AnswerOptions& options, Answerer& answerer, const Tokenizer& tokenizer, const ChatTemplate* chat,
       std::optional<int32_t> end)
      : end_(end),
        system_(options.system),
        longest_answer_(options.max_new_tokens),
        answerer_(answerer),
        tokenizer_(tokenizer),
        chat_(chat) {}

  void run() {
    std::string line;
    for (;;) {
      const ChatTerminal::Read read = terminal_.read("> ", line);
      if (read == ChatTerminal::Read::interrupted) {
        say("\n/exit or Ctrl-D ends the conversation");
        continue;
      }
      if (read == ChatTerminal::Read::end) break;
      if (trim(line).empty()) continue;
      if (line.starts_with('/') && !line.starts_with("//")) {
        if (!command(line)) return;
        continue;
      }
      turns_.push_back(message("user", replace_invalid_utf8(line.starts_with("//") ? line.substr(1) : line)));
      answer();
    }
    if (terminal_.interactive()) print("\n");
  }

 private:
  // False ends the conversation.
  bool command(const std::string& line) {
    const size_t blank = std::min(line.find(' '), line.size());
    const std::string name = line.substr(0, blank);
    const std::string text(trim(std::string_view(line).substr(blank)));
    if (name == "/exit" || name == "/quit") return false;
    if (name == "/help") {
      say(kHelp);
    } else if (name == "/reset") {
      turns_.clear();
    } else if (name == "/undo") {
      forget_last();
    } else if (name == "/again") {
      again();
    } else if (name == "/system") {
      set_system(text);
    } else if (name == "/save") {
      save(text);
    } else {
      const std::vector<std::string> names = {"/help",   "/reset", "/undo", "/again",
                                              "/system", "/save",  "/exit"};
      say(formatted("no command {}{}", name, did_you_mean(name, names, "; /help lists them")));
    }
    return true;
  }

  void forget_last() {
    while (!turns_.empty() && turns_.back()["role"] != "user") turns_.erase(turns_.size() - 1);
    if (!turns_.empty()) turns_.erase(turns_.size() - 1);
  }

  void again() {
    if (turns_.empty()) return say("there is no question yet");
    if (turns_.back()["role"] == "assistant") turns_.erase(turns_.size() - 1);
    answer();
  }

  void set_system(const std::string& text) {
    if (chat_ == nullptr) return say("a system message needs a chat template: --template names one");
    system_.reset();
    if (!text.empty()) system_ = replace_invalid_utf8(text);
  }

  void save(const std::string& file) {
    if (file.empty()) return say("/save FILE: name the file");
    if (std::filesystem::exists(file) && file != saved_)
      return say(formatted("error: {} exists already; name another file", file));
    try {
      const std::string text = Messages{{"messages", conversation().messages}}.dump() + "\n";
      if (file == saved_)
        write_file_atomically(file, text);
      else
        write_new_file(file, text);  // another conversation may have saved one since
      saved_ = file;
      say("saved " + file);
    } catch (const Error& error) {
      say(std::string("error: ") + error.what());
    }
  }

  [[nodiscard]] Conversation conversation() const {
    Conversation conversation;
    if (system_) conversation.messages.push_back(message("system", *system_));
    for (const auto& turn : turns_) conversation.messages.push_back(turn);
    return conversation;
  }

  // The model's input: the conversation by the template, or the last question alone.
  [[nodiscard]] std::vector<int32_t> prompt() const {
    const std::string text =
        chat_ != nullptr ? chat_->render(conversation(), true) : turns_.back()["content"].get<std::string>();
    std::vector<int32_t> ids = tokenizer_.encode(text, false);
    if (end_) ids.push_back(*end_);
    return ids;
  }

  // The prompt with the oldest turns left out until an answer has room. Empty where the last question alone
  // has none.
  std::vector<int32_t> fitting_prompt() {
    // An encoder reads apart from what the decoder writes.
    const int64_t most = answerer_.source() > 0 ? answerer_.source() : answerer_.context();
    const int64_t room =
        answerer_.source() > 0 ? 0 : std::min(longest_answer_, std::max<int64_t>(answerer_.context() / 4, 1));
    bool shortened = false;
    for (;;) {
      std::vector<int32_t> ids = prompt();
      const auto length = static_cast<int64_t>(ids.size());
      if (length + room <= most) {
        if (shortened)
          say(formatted("note    the oldest turns were forgotten: the context has {} tokens",
                        format_count(answerer_.context())));
        return ids;
      }
      if (turns_.size() < 2 || chat_ == nullptr) {
        say(formatted("error: the message has {} tokens, the context only {}; --context makes it larger",
                      format_count(length), format_count(most)));
        return {};
      }
      turns_.erase(0);
      while (turns_.size() > 1 && turns_.front()["role"] != "user") turns_.erase(0);
      shortened = true;
    }
  }

  void answer() {
    std::vector<int32_t> ids;
    try {
      ids = fitting_prompt();
    } catch (const TemplateError& error) {
      say(std::string("error: ") + error.what());
    }
    if (ids.empty()) return forget_last();
    terminal_.interrupted();
    const Answer answer = answerer_.answer(ids, answers_++, [this](std::string_view text) {
      print(text);
      flush_output();
      return !terminal_.interrupted();
    });
    print("\n");
    flush_output();
    if (trim(answer.text).empty() && answer.end == AnswerEnd::end_token) say("note    the answer is empty");
    if (answer.end == AnswerEnd::length) say("note    cut after --max-new-tokens");
    if (answer.end == AnswerEnd::context) say("note    cut: the context is full");
    turns_.push_back(message("assistant", answer.text));
  }

  std::optional<int32_t> end_;
  std::optional<std::string> system_;
  int64_t longest_answer_;
  Answerer& answerer_;
  const Tokenizer& tokenizer_;
  const ChatTemplate* chat_;
  ChatTerminal terminal_;
  Messages turns_ = Messages::array();
  int64_t answers_ = 0;  // each is drawn anew
  std::string saved_;    // by this conversation, which may save it again
};

ExitCode run(AnswerOptions& options) {
  const ModelPaths paths = find_model(options.folder, options.adapter);
  const InferenceDevice device = inference_device(options, paths);
  ModelFiles& files = *options.sources->models;
  const std::shared_ptr<const Tokenizer> tokenizer = model_tokenizer(paths.base, files);
  const ModelSpec& model = files.spec(paths.base);
  if (model.encoder_decoder) refuse_template(options, "chat");
  const std::optional<ChatTemplate> chat =
      model.encoder_decoder ? std::nullopt : answering_template(options, paths);
  if (!chat && options.system)
    throw UsageError("chat: --system needs a chat template, and the model has none; name one by --template");
  const bool encodes = model.encoder_decoder.has_value();
  if (!options.context)
    options.context = std::min(kUsualContext, model.longest_text().value_or(kUsualContext));
  options.go_on = !encodes;  // what is read anew has no beginning in common
  start_threads(device.cpu.threads);
  Progress progress(LogLevel::info, 1);
  options.observer = &progress;
  Answerer answerer(options, paths, device, tokenizer.get(), chat ? &*chat : nullptr, 0);
  say(formatted("chat    {} · {} · /help lists the commands, Ctrl-D ends", printable(options.folder.string()),
                chat      ? printable(chat->published().name())
                : encodes ? "an encoder and a decoder: each line is a source by itself"
                          : "no template: each line is a prompt by itself"));
  Chat(options, answerer, *tokenizer, chat ? &*chat : nullptr,
       encodes ? end_of_source(paths.base, files) : std::nullopt)
      .run();
  return ExitCode::ok;
}

}  // namespace

void add_chat(CLI::App& app, Action& action) {
  struct Arguments {
    AnswerOptions options;
    AnswerArguments shared;
  };
  auto arguments = std::make_shared<Arguments>();
  arguments->options.max_new_tokens = kUsualAnswer;
  CLI::App* command = app.add_subcommand("chat", "a conversation with a model or a finished run");
  arguments->shared.add_model(*command, arguments->options);
  AnswerArguments::add_template(*command, arguments->options);
  AnswerArguments::add_system(*command, arguments->options);
  arguments->shared.add_thinking(*command);
  arguments->shared.add_choices(*command, arguments->options);
  arguments->shared.add_machine(*command, arguments->options);
  command->callback([arguments, &action] {
    action = [arguments] {
      arguments->shared.finish(arguments->options);
      return run(arguments->options);
    };
  });
}

}  // namespace plimsoll
