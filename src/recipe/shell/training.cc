#include "recipe/shell/training.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <map>
#include <set>

#include "base/format.h"
#include "base/regular_file.h"
#include "base/strings.h"
#include "recipe/shell/condition.h"
#include "recipe/shell/launcher.h"
#include "recipe/shell/variables.h"
#include "recipe/shell/words.h"

namespace plimsoll {
namespace {

// Slurm's own lines: what its variables hold in the script.
void read_slurm(std::string_view text, ShellVariables& variables) {
  for (const std::string& line : split(text, '\n')) {
    if (!line.starts_with("#SBATCH")) continue;
    const auto value_of = [&](std::initializer_list<std::string_view> options) -> std::string {
      for (const std::string_view option : options) {
        const size_t at = line.find(option);
        if (at == std::string::npos) continue;
        std::string_view rest = std::string_view(line).substr(at + option.size());
        while (!rest.empty() && (rest.front() == '=' || rest.front() == ' ')) rest.remove_prefix(1);
        rest = rest.substr(0, rest.find_first_of(" ,"));
        rest.remove_prefix(rest.rfind(':') + 1);  // a100:4
        const size_t end = rest.find_first_not_of("0123456789");
        return std::string(rest.substr(0, end));
      }
      return "";
    };
    if (const std::string nodes = value_of({"--nodes", "-N "}); !nodes.empty())
      for (const char* name : {"SLURM_NNODES", "SLURM_JOB_NUM_NODES"}) variables.set(name, {nodes});
    if (const std::string cards = value_of({"--gpus-per-node", "--gres=gpu", "--gres gpu"}); !cards.empty())
      for (const char* name : {"SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"}) variables.set(name, {cards});
    if (const std::string tasks = value_of({"--ntasks-per-node"}); !tasks.empty())
      variables.set("SLURM_NTASKS_PER_NODE", {tasks});
    if (const std::string tasks = value_of({"--ntasks=", "-n "}); !tasks.empty())
      for (const char* name : {"SLURM_NTASKS", "SLURM_NPROCS"}) variables.set(name, {tasks});
  }
}

// The script's position between if and fi, do and done. A function is read where it is written, as if it were
// called there.
class Branches {
 public:
  // Takes the words that begin and end branches off the command; `condition` is that of the last if. True where the
  // command that is left is a part of a condition.
  bool take(ShellCommand& command, const ShellVariables& variables) {
    while (!command.words.empty()) {
      const std::string word = plain_text(command.words.front());
      if (word == "if" || word == "while" || word == "until" || word == "for" || word == "case" ||
          word == "select") {
        open(word, command);
        if (word == "for" || word == "case" || word == "select") return false;
      } else if (word == "fi" || word == "done" || word == "esac") {
        if (!levels_.empty()) levels_.pop_back();
        if (depth() < arguments_depth_) arguments_depth_ = 0;
      } else if (word == "then" || word == "else" || word == "elif") {
        if (!levels_.empty()) levels_.back().turn(word);
      } else if (word != "do" && word != "{" && word != "}" && word != "!") {
        break;
      } else if (word == "!" && in_condition()) {
        break;
      }
      command.words.erase(command.words.begin());
    }
    if (!in_condition() || command.words.empty()) return false;
    levels_.back().ask(command.link,
                       is_certain_outside() ? read_condition(command, variables) : std::nullopt);
    return true;
  }
  // A && { ... }: commands of which one before decides.
  void begin_group(std::optional<bool> runs) {
    levels_.emplace_back();
    levels_.back().runs = runs;
  }
  void end_group() {
    if (!levels_.empty()) levels_.pop_back();
  }
  [[nodiscard]] bool is_certain() const {
    return std::ranges::all_of(levels_, [](const Level& one) { return one.runs == true; });
  }
  // In a branch that is not taken, and within a loop over the script's arguments: it has no arguments here.
  [[nodiscard]] bool is_never_run() const {
    return arguments_depth_ > 0 ||
           std::ranges::any_of(levels_, [](const Level& one) { return one.runs == false; });
  }
  // `if [ -z "$X" ]; then X=value` and `if [ "$X" == "" ]` set X's default.
  [[nodiscard]] bool fills(std::string_view name) const {
    const size_t empty_word = condition_.find("=  ");
    const bool compares_with_nothing = empty_word != std::string::npos && condition_[empty_word - 1] != '!';
    const bool asks_for_nothing = condition_.find("-z ") != std::string::npos || compares_with_nothing;
    return condition_.starts_with("if") && asks_for_nothing && asks_of(name);
  }

 private:
  // $NAME, ${NAME} or ${NAME:-}, and not $NAME_OF_ANOTHER.
  [[nodiscard]] bool asks_of(std::string_view name) const {
    for (const char* sign : {"$", "${"}) {
      const std::string requested = sign + std::string(name);
      for (size_t at = condition_.find(requested); at != std::string::npos;
           at = condition_.find(requested, at + 1))
        if (!is_name_char(condition_[at + requested.size()])) return true;  // a blank ends the condition
    }
    return false;
  }

  // while [[ $# -gt 0 ]], while getopts "b:l:" option, for argument in "$@".
  [[nodiscard]] bool goes_over_arguments(std::string_view word) const {
    const auto says = [&](const char* text) { return condition_.find(text) != std::string::npos; };
    if (word == "for") return says(" in $@ ") || says(" in ${@} ") || says(" in $* ");
    return (word == "while" || word == "until") &&
           (says("$#") || says("${#}") || says("getopts ") || says("$1 "));
  }

  // One if, or one loop, whose commands may run any number of times.
  struct Level {
    std::optional<bool> runs;    // the branch at hand
    std::optional<bool> before;  // whether one before it was taken
    std::optional<bool> holds;   // what its condition says so far
    bool in_condition = false, is_first = true;

    void ask(ShellLink link, std::optional<bool> says) {
      const bool stops = link == ShellLink::if_false;  // A || B is true where A is
      if (is_first || link == ShellLink::always)
        holds = is_first ? says : std::nullopt;
      else if (holds != stops)
        holds = says == stops || holds ? says : std::nullopt;
      is_first = false;
    }
    void turn(const std::string& word) {
      if (word == "then") {
        in_condition = false;
        runs = before == true ? false : holds == false ? holds : before == false ? holds : std::nullopt;
        if (before != true) before = holds == true ? holds : before == false ? holds : std::nullopt;
        return;
      }
      in_condition = word == "elif";
      is_first = true;
      runs = before ? std::optional(!*before) : std::nullopt;
    }
  };

  void open(const std::string& word, const ShellCommand& command) {
    Level level;
    level.in_condition = word == "if";
    if (word == "if") level.before = false;
    levels_.push_back(level);
    condition_.clear();
    for (const ShellWord& one : command.words) condition_ += plain_text(one) + " ";
    if (arguments_depth_ == 0 && goes_over_arguments(word)) arguments_depth_ = depth();
  }
  [[nodiscard]] size_t depth() const { return levels_.size(); }
  [[nodiscard]] bool in_condition() const { return !levels_.empty() && levels_.back().in_condition; }
  [[nodiscard]] bool is_certain_outside() const {
    return std::all_of(levels_.begin(), levels_.end() - 1, [](const Level& one) { return one.runs == true; });
  }

  std::vector<Level> levels_;
  size_t arguments_depth_ = 0;  // of the outermost loop over arguments; 0: in none
  std::string condition_;
};

// Commands behind && and ||.
class Chain {
 public:
  // Says whether a command runs; nothing where only the machine knows it.
  [[nodiscard]] std::optional<bool> runs(ShellLink link) const {
    if (link == ShellLink::always) return true;
    const bool wants = link == ShellLink::if_true;
    if (is_test_) return says_ ? std::optional(*says_ == wants) : std::nullopt;
    return wants ? std::optional(true) : std::nullopt;  // programs are taken to succeed
  }
  void note(const ShellCommand& command, const ShellVariables& variables) {
    if (command.words.empty()) return says(true);  // assignments alone
    const std::string first = plain_text(command.words.front()), last = plain_text(command.words.back());
    says_ = read_condition(command, variables);
    is_test_ = says_ || first == "[" || first == "[[" || first == "test" || last == "]" || last == "]]";
  }

 private:
  void says(bool value) {
    says_ = value;
    is_test_ = true;
  }
  std::optional<bool> says_;
  bool is_test_ = false;
};

// Functions, and which of them call others. A training in a function counts if the script calls that, or if it calls
// none at all, as files of functions for others do.
class Functions {
 public:
  // Follows definitions and braces. Returns true if the command only begins or ends a function.
  bool take(ShellCommand& command) {
    if (command.words.empty()) return true;
    std::string first = plain_text(command.words.front());
    if (command.defines || first == "function") {
      if (first == "function" && command.words.size() > 1) first = plain_text(command.words[1]);
      pending_ = first;
      if (command.words.size() > 2 && plain_text(command.words.back()) == "{") open();
      return true;
    }
    if (first == "{") {
      open();
      command.words.erase(command.words.begin());
    } else if (first == "}") {
      if (depth_ == begun_) inside_.clear();
      depth_ = std::max(0, depth_ - 1);
    }
    return false;
  }
  // The function that the script is in; "" outside of all.
  [[nodiscard]] const std::string& inside() const { return inside_; }
  // A command whose name only the shell knows may call any of them.
  void note_call(const std::string& word) {
    calls_[inside_].insert(word);
    may_call_any_ = may_call_any_ || is_unresolved(word);
  }
  [[nodiscard]] bool is_run(const std::string& function) const {
    return function.empty() || may_call_any_ || called_from("", function, 0) || !calls_any();
  }

 private:
  static constexpr int kDeepest = 8;

  void open() {
    ++depth_;
    if (pending_.empty()) return;
    names_.insert(pending_);
    if (inside_.empty()) {
      inside_ = pending_;
      begun_ = depth_;
    }
    pending_.clear();
  }
  [[nodiscard]] bool called_from(const std::string& caller, const std::string& function, int depth) const {
    const auto calls = calls_.find(caller);
    if (calls == calls_.end() || depth > kDeepest) return false;
    return calls->second.contains(function) ||
           std::ranges::any_of(calls->second, [&](const std::string& one) {
             return one != caller && names_.contains(one) && called_from(one, function, depth + 1);
           });
  }
  [[nodiscard]] bool calls_any() const {
    const auto calls = calls_.find("");
    return calls != calls_.end() &&
           std::ranges::any_of(calls->second, [&](const std::string& one) { return names_.contains(one); });
  }

  std::string pending_, inside_;
  int depth_ = 0, begun_ = 0;
  bool may_call_any_ = false;
  std::set<std::string> names_;
  std::map<std::string, std::set<std::string>> calls_;
};

// for NAME in A B C: the value where there is one alone.
void read_loop(const ShellCommand& command, ShellVariables& variables) {
  if (command.words.size() < 3 || plain_text(command.words[0]) != "for") return;
  ShellVariables::Values values;
  for (size_t i = 3; i < command.words.size(); ++i)
    for (std::string& field : variables.expand(command.words[i])) values.push_back(std::move(field));
  const std::string name = plain_text(command.words[1]);
  if (values.size() == 1)
    variables.set(name, values);
  else
    variables.forget(name);
}

// : ${NAME:=value}, which sets what has no value.
bool read_defaults(const ShellCommand& command, ShellVariables& variables) {
  if (command.words.size() < 2 || plain_text(command.words.front()) != ":") return false;
  for (size_t i = 1; i < command.words.size(); ++i) {
    const std::string text = plain_text(command.words[i]);
    const size_t equals = text.find('=');
    if (!text.starts_with("${") || equals == std::string::npos) continue;
    const std::string name = text.substr(2, equals - 2 - (text[equals - 1] == ':' ? 1 : 0));
    const auto known = variables.value(name);
    if (name.empty() || !std::ranges::all_of(name, is_name_char) || (known && !known->empty())) continue;
    variables.set(name, variables.expand(command.words[i]));
  }
  return true;
}

std::string name_of(const ShellWord& assignment) {
  const std::string text = plain_text(assignment);
  return text.substr(0, std::min(text.find('='), text.find('+')));
}

// Takes the assignments that a command begins with; what is left is a program with its words.
void take_assignments(ShellCommand& command, const Branches& branches, bool is_certain,
                      ShellVariables& variables) {
  static constexpr std::array<std::string_view, 6> kDeclare = {"export",   "declare", "local",
                                                               "readonly", "typeset", "set"};
  while (!command.words.empty()) {
    const ShellWord& word = command.words.front();
    const std::string text = plain_text(word);
    const bool declares = std::find(kDeclare.begin(), kDeclare.end(), text) != kDeclare.end();
    const std::string name = name_of(word);
    const auto known = variables.value(name);
    const bool is_default = branches.fills(name) && (!known || known->empty() || known->starts_with('$'));
    if (!declares && !variables.assign(word, is_certain || is_default)) return;
    command.words.erase(command.words.begin());
  }
}

std::vector<LaunchWord> expanded(const ShellCommand& command, const ShellVariables& variables) {
  std::vector<LaunchWord> words;
  size_t total = 0;
  for (const ShellWord& word : command.words)
    for (std::string& field : variables.expand(word)) {
      total += field.size() + 1;
      if (total > kMaxDocumentBytes)
        throw DocumentError(word.line, "is a command that grows beyond a recipe's size");
      words.push_back({std::move(field), word.line});
    }
  return words;
}

// The number of processes, which launchers say.
bool is_count(std::string_view key) {
  return key == "num_processes" || key == "num_machines" || key == "nproc_per_node" || key == "nnodes" ||
         key == "world_size";
}

bool resumes(const ShellTraining& one) {
  return std::ranges::any_of(one.keys.items,
                             [](const Node& item) { return item.key == "resume_from_checkpoint"; });
}

// Two ways of starting one training: with a launcher where there is one, else without; with a checkpoint, or from the
// beginning.
bool start_the_same(const ShellTraining& a, const ShellTraining& b) {
  const auto keys = [](const ShellTraining& one) {
    std::vector<std::pair<std::string, std::string>> all;
    for (const Node& item : one.keys.items)
      if (!is_count(item.key) && item.key != kProgramKey && item.key != "resume_from_checkpoint")
        all.emplace_back(item.key, item.text);
    return all;
  };
  const bool is_same_recipe = !a.config.empty() || resumes(a) != resumes(b);
  return is_same_recipe && a.config == b.config && a.program == b.program && keys(a) == keys(b);
}

}  // namespace

bool is_shell_script(std::string_view text, std::string_view name) {
  const std::string end = std::filesystem::path(name).extension().string();
  const std::string_view first = text.substr(0, text.find('\n'));
  return end == ".sh" || end == ".bash" || end == ".slurm" || end == ".sbatch" ||
         (first.starts_with("#!") && first.find("sh") != std::string_view::npos &&
          first.find("python") == std::string_view::npos);
}

namespace {

struct Found {
  ShellTraining training;
  std::string function;
};

// The text that a command hands to another shell: bash -c TEXT, also behind srun or nohup, and eval TEXT.
std::optional<std::string> handed_text(const std::vector<LaunchWord>& words) {
  if (words.empty()) return std::nullopt;
  if (words.front().text == "eval") {
    std::string all;
    for (size_t i = 1; i < words.size(); ++i) all += (i > 1 ? " " : "") + words[i].text;
    return all;
  }
  for (size_t i = 0; i + 2 < words.size(); ++i) {
    const std::string name = std::filesystem::path(words[i].text).filename().string();
    const std::string& option = words[i + 1].text;
    const bool reads_text = option == "-c" || option == "-lc" || option == "-ec" || option == "-xc";
    if ((name == "bash" || name == "sh") && reads_text) return words[i + 2].text;
  }
  return std::nullopt;
}

// Reads the commands of a script one after the other.
class ScriptReader {
 public:
  ScriptReader(std::string_view text, std::filesystem::path folder) : folder_(std::move(folder)) {
    read_slurm(text, variables_);
    // Relative paths are tried in the script's folder and in the working directory, whatever these are called.
    for (const char* here : {"PWD", "SLURM_SUBMIT_DIR"}) variables_.set(here, {"."});
    read(text, 0, 0);
  }

  // The trainings that the script starts, without those of functions that it never calls.
  std::vector<ShellTraining> take() {
    std::erase_if(found_, [&](const Found& one) { return !functions_.is_run(one.function); });
    std::vector<ShellTraining> trainings;
    for (Found& one : found_) trainings.push_back(std::move(one.training));
    return trainings;
  }

 private:
  static constexpr int kDeepest = 3, kMostAbove = 4;

  // `line`: where a text begins that a command hands to another shell; 0: of the script itself.
  void read(std::string_view text, int line, int depth) {
    for (ShellCommand& command : read_shell_commands(text)) {
      const std::optional<bool> runs = chain_.runs(command.link);
      follow_group(command, runs);
      if (functions_.take(command)) continue;
      const bool asks = branches_.take(command, variables_);
      if (branches_.is_never_run() || (runs == false && !asks)) continue;
      read_loop(command, variables_);
      if (read_defaults(command, variables_)) continue;
      take_assignments(command, branches_, branches_.is_certain() && runs == true, variables_);
      if (!asks) chain_.note(command, variables_);
      if (command.words.empty()) continue;
      std::vector<LaunchWord> words = expanded(command, variables_);
      // It is run without arguments of its own; a function's are others.
      if (functions_.inside().empty())
        std::erase_if(words, [](const LaunchWord& word) {
          return word.text == "$@" || word.text == "${@}" || word.text == "$*";
        });
      for (LaunchWord& word : words) word.line = line > 0 ? line : word.line;
      if (!words.empty()) functions_.note_call(words.front().text);
      follow_folder(words);
      if (auto training = read_launch_command(words, variables_)) {
        training->folder = within_.string();
        found_.push_back({std::move(*training), functions_.inside()});
      } else if (const auto text_of_another = depth < kDeepest ? handed(words) : std::nullopt)
        read_within(*text_of_another, words.front().line, depth + 1);
    }
  }

  // cd FOLDER: its name from here on; folders that only the machine knows end it.
  void follow_folder(const std::vector<LaunchWord>& words) {
    if (words.size() != 2 || words.front().text != "cd") return;
    const std::string& folder = words[1].text;
    const bool is_known = !is_unresolved(folder) && std::filesystem::path(folder).is_relative();
    within_ = is_known ? (within_ / folder).lexically_normal() : std::filesystem::path();
  }

  void read_within(const std::string& text, int line, int depth) {
    const Chain before = chain_;
    read(text, line, depth);
    chain_ = before;
  }

  // The text that a command hands to a shell, or the file that it reads: source FILE, . FILE.
  [[nodiscard]] std::optional<std::string> handed(const std::vector<LaunchWord>& words) const {
    const bool reads_file = words.size() > 1 && (words.front().text == "source" || words.front().text == ".");
    if (!reads_file) return handed_text(words);
    const std::filesystem::path file = words[1].text;
    std::error_code ignored;
    std::filesystem::path folder = folder_;
    for (int i = 0; i < kMostAbove && !folder.empty(); ++i, folder = folder.parent_path()) {
      if (!std::filesystem::is_regular_file(folder / file, ignored)) continue;
      const std::string text = read_start(folder / file, static_cast<int64_t>(kMaxDocumentBytes) + 1);
      const bool is_text = text.size() <= kMaxDocumentBytes && text.find('\0') == std::string::npos;
      return is_text ? std::optional(text) : std::nullopt;
    }
    return std::nullopt;
  }

  // A && { ... }: what decides about its first command decides about all of them.
  void follow_group(const ShellCommand& command, std::optional<bool> runs) {
    const std::string first = command.words.empty() ? "" : plain_text(command.words.front());
    if (first == "{") {
      groups_.push_back(runs != true);
      if (runs != true) branches_.begin_group(runs);
    } else if (first == "function" && plain_text(command.words.back()) == "{") {
      groups_.push_back(false);
    } else if (first == "}" && !groups_.empty()) {
      if (groups_.back()) branches_.end_group();
      groups_.pop_back();
    }
  }

  std::filesystem::path folder_, within_;
  ShellVariables variables_;
  Branches branches_;
  Chain chain_;
  Functions functions_;
  std::vector<bool> groups_;  // of open braces, whether a command before decides about them
  std::vector<Found> found_;
};

[[noreturn]] void refuse_several(const std::vector<ShellTraining>& found, int at, const char* why) {
  std::vector<std::string> lines;
  for (const ShellTraining& one : found) lines.push_back(std::to_string(one.line));
  throw DocumentError(
      at, formatted("is a script that starts {}{} trainings (lines {}): name one by its line, as in "
                    "`plimsoll plan SCRIPT:{}`",
                    why, found.size(), join(lines, ", "), lines.front()));
}

}  // namespace

ShellTraining read_shell_training(std::string_view text, std::optional<int> line,
                                  const std::filesystem::path& folder) {
  check_text(text);
  std::vector<ShellTraining> found = ScriptReader(text, folder).take();
  if (line && !found.empty()) {
    const auto named = std::ranges::find(found, *line, &ShellTraining::line);
    if (named == found.end()) refuse_several(found, *line, "no training here, and ");
    return std::move(*named);
  }
  if (found.empty())
    throw DocumentError(
        0,
        "is a script that starts no training: looked for torchrun, accelerate launch, deepspeed, "
        "llamafactory-cli train, axolotl train, tune run, trl or python with arguments of a training such as "
        "--learning_rate; a recipe is a map of keys, in YAML or JSON");
  const bool is_one =
      found.size() == 1 || std::all_of(found.begin(), found.end(), [&](const ShellTraining& one) {
        return start_the_same(found.front(), one);
      });
  if (!is_one) refuse_several(found, found[1].line, "");
  const auto anew = std::ranges::find_if_not(found, resumes);
  return std::move(anew == found.end() ? found.front() : *anew);
}

}  // namespace plimsoll
