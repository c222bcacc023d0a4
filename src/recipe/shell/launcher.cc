#include "recipe/shell/launcher.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <span>

#include "base/format.h"
#include "base/strings.h"

namespace plimsoll {
namespace {

using Words = std::span<const LaunchWord>;

bool is_one_of(std::string_view text, std::span<const std::string_view> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

// Programs that start others.
constexpr std::array<std::string_view, 18> kWrappers = {
    "nohup", "srun",    "time",   "exec",   "sudo", "env",         "uv",        "run",    "poetry",
    "conda", "numactl", "stdbuf", "pipenv", "-",    "singularity", "apptainer", "docker", "podman"};
// Commands of ms-swift that train (swift/cli/main.py).
constexpr std::array<std::string_view, 3> kOfSwift = {"sft", "pt", "rlhf"};
// Options of launchers that take no value (torch 2.12 distributed/run.py, accelerate 1.x commands/launch.py,
// DeepSpeed 0.18 launcher/runner.py).
constexpr std::array<std::string_view, 29> kAlone = {"standalone",
                                                     "use_env",
                                                     "no_python",
                                                     "run_path",
                                                     "multi_gpu",
                                                     "use_deepspeed",
                                                     "use_fsdp",
                                                     "cpu",
                                                     "mps",
                                                     "tpu",
                                                     "debug",
                                                     "quiet",
                                                     "q",
                                                     "use_xpu",
                                                     "use_megatron_lm",
                                                     "enable_cpu_affinity",
                                                     "no_local_rank",
                                                     "force_multi",
                                                     "no_ssh",
                                                     "no_ssh_check",
                                                     "bind_cores_to_rank",
                                                     "use_parallelism_config",
                                                     "tpu_use_cluster",
                                                     "no_tpu_cluster",
                                                     "tpu_use_sudo",
                                                     "use_mps_device",
                                                     "fp16",
                                                     "signals_to_handle_none",
                                                     "save_pid"};
// Arguments that a training has and other programs have not.
constexpr std::array<std::string_view, 14> kOfTrainings = {
    "learning_rate",      "lr",
    "num_train_epochs",   "per_device_train_batch_size",
    "max_steps",          "micro_batch_size",
    "num_epochs",         "do_train",
    "train_batch_size",   "per_gpu_train_batch_size",
    "batch_size_per_gpu", "gradient_accumulation_steps",
    "finetuning_type",    "max_train_steps"};
// Arguments that name a recipe.
constexpr std::array<std::string_view, 4> kConfig = {"config", "config_file", "yaml_config", "config_path"};

bool is_recipe_file(std::string_view text) {
  return text.ends_with(".yaml") || text.ends_with(".yml") || text.ends_with(".json");
}

bool is_python(std::string_view name) {
  return name.starts_with("python") && name.find_first_not_of("0123456789.", 6) == std::string_view::npos;
}

std::string base_name(const std::string& text) { return std::filesystem::path(text).filename().string(); }

// "--per-device-batch=4" and "-m": the option's name in words with underscores, and its value where it holds
// one.
struct OptionWord {
  std::string name;
  std::optional<std::string> value;
};
std::optional<OptionWord> option_of(const std::string& text) {
  const size_t signs = std::min(text.find_first_not_of('-'), text.size());
  const bool is_letter = signs < text.size() && std::isalpha(static_cast<unsigned char>(text[signs])) != 0;
  if (signs == 0 || signs > 2 || !is_letter) return std::nullopt;
  const size_t equals = text.find('=');
  OptionWord option;
  option.name = text.substr(signs, equals == std::string::npos ? equals : equals - signs);
  std::replace(option.name.begin(), option.name.end(), '-', '_');
  if (equals != std::string::npos) option.value = text.substr(equals + 1);
  return option;
}

class Command {
 public:
  Command(Words words, const ShellVariables& variables) : words_(words), variables_(variables) {}

  std::optional<ShellTraining> read() {
    training_.keys.kind = Node::Kind::map;
    training_.line = words_.front().line;
    if (find_launcher()) {
      while (at_ < words_.size() && launch()) {
      }
    } else if (at_ = 0; is_own_program()) {
      own_program();
    } else {
      return std::nullopt;
    }
    read_arguments();
    const bool trains = names_tool_ || std::any_of(kOfTrainings.begin(), kOfTrainings.end(),
                                                   [&](std::string_view key) { return has(key); });
    const bool only_predicts = has("do_predict") && !has("do_train");
    if (!trains || only_predicts) return std::nullopt;
    count_visible();
    return std::move(training_);
  }

 private:
  [[nodiscard]] bool is_done() const { return at_ >= words_.size(); }
  [[nodiscard]] const std::string& text() const { return words_[at_].text; }
  [[nodiscard]] bool has(std::string_view key) const {
    return std::any_of(training_.keys.items.begin(), training_.keys.items.end(),
                       [&](const Node& item) { return item.key == key; });
  }

  // The last of several values counts.
  void say(const std::string& key, Node node, int line) {
    node.key = key;
    node.line = node.key_line = line;
    std::erase_if(training_.keys.items, [&](const Node& item) { return item.key == key; });
    training_.keys.items.push_back(std::move(node));
  }
  void say(const std::string& key, const std::string& value, int line) {
    Node node;
    node.kind = Node::Kind::scalar;
    node.text = value;
    if (value.starts_with('{') || value.starts_with('[')) {
      try {
        node = read_yaml(value);
      } catch (const DocumentError&) {  // NOLINT: text that begins so
      }
    }
    if (value.empty()) node.kind = Node::Kind::null;
    say(key, std::move(node), line);
  }
  // The number of processes is often found out on the machine; then it is not stated.
  void say_count(const std::string& key, const std::string& value, int line) {
    const bool is_number = !value.empty() && std::all_of(value.begin(), value.end(), [](unsigned char c) {
      return std::isdigit(c) != 0;
    });
    if (is_number || !(is_unresolved(value) || value == "gpu" || value == "auto")) say(key, value, line);
    counts_ = true;
  }

  bool is_launcher(const std::string& word) const {
    static constexpr std::array<std::string_view, 10> kNames = {
        "torchrun", "accelerate", "accelerate-launch", "deepspeed", "llamafactory-cli", "axolotl",
        "tune",     "trl",        "llamafactory",      "swift"};
    const std::string name = base_name(word);
    return is_one_of(name, kNames) || is_python(name);
  }

  // A program of another name, or one that only the shell knows, with arguments of transformers'.
  [[nodiscard]] bool is_own_program() const {
    static constexpr std::array<std::string_view, 7> kOfTransformers = {
        "model_name_or_path",          "output_dir", "learning_rate",    "num_train_epochs",
        "per_device_train_batch_size", "do_train",   "lr_scheduler_type"};
    const auto count = std::count_if(words_.begin(), words_.end(), [](const LaunchWord& word) {
      const auto option = option_of(word.text);
      return option && is_one_of(option->name, kOfTransformers);
    });
    constexpr std::array<std::string_view, 5> kOthers = {"sbatch", "qsub", "echo", "printf", "bash"};
    return count >= 4 && !is_one_of(base_name(text()), kOthers);
  }

  // petrogpt-train --stage sft ..., $PYTHON train.py ...
  void own_program() {
    const bool is_script = words_.size() > 1 && words_[1].text.ends_with(".py");
    if (is_script) ++at_;
    training_.program = base_name(text());
    if (is_script) training_.script = text();
    ++at_;
  }

  bool find_launcher() {
    if (!is_launcher(text()) && !is_one_of(base_name(text()), kWrappers)) return false;
    while (!is_done() && !is_launcher(text())) ++at_;
    return !is_done();
  }

  // One launcher and its options; true where another one stands behind it.
  bool launch() {
    const std::string name = base_name(text());
    if (is_python(name)) return python();
    if (name == "torchrun") return ++at_, is_torchrun_ = true, options(&Command::torchrun_option), script();
    if (name == "accelerate-launch") return ++at_, options(&Command::accelerate_option), script();
    if (name == "deepspeed")
      return ++at_, is_deepspeed_ = true, options(&Command::deepspeed_option), script();
    if (name == "accelerate") {
      at_ += 1;
      if (is_done() || text() != "launch") return at_ = words_.size(), false;
      return ++at_, options(&Command::accelerate_option), script();
    }
    return tool(name);
  }

  bool python() {
    ++at_;
    while (!is_done() && text().starts_with('-') && text() != "-m") ++at_;
    if (is_done()) return false;
    if (text() != "-m") return script();
    ++at_;
    return !is_done() && module();
  }

  bool module() {
    const std::string name = text();
    if (name == "torch.distributed.run" || name == "torch.distributed.launch")
      return ++at_, is_torchrun_ = true, options(&Command::torchrun_option), script();
    if (name == "accelerate.commands.launch") return ++at_, options(&Command::accelerate_option), script();
    ++at_;
    training_.program = name;
    training_.script = name;
    std::replace(training_.script.begin(), training_.script.end(), '.', '/');
    training_.script += ".py";
    if (name == "axolotl.cli.train") names_tool_ = true;
    return false;
  }

  // The launched program: -m module, a file in Python, or another launcher.
  bool script() {
    if (is_done()) return false;
    if (is_launcher(text())) return true;
    if (text() == "-m" || text() == "--module") {
      ++at_;
      return !is_done() && module();
    }
    training_.program = base_name(text());
    if (text().ends_with(".py")) training_.script = text();
    for (const std::string_view verb : kOfSwift)
      if (text().ends_with(formatted("swift/cli/{}.py", verb)))
        training_.program = formatted("swift {}", verb);
    ++at_;
    return false;
  }

  // torchtune's recipes are launched by its own torchrun.
  bool tool(const std::string& name) {
    ++at_;
    if (is_done()) return false;
    const std::string verb = text();
    const bool trains = (name.starts_with("llamafactory") && verb == "train") ||
                        (name == "axolotl" && verb == "train") || (name == "tune" && verb == "run") ||
                        (name == "swift" && is_one_of(verb, kOfSwift)) ||
                        (name == "trl" && (verb == "sft" || verb == "dpo" || verb == "reward"));
    if (!trains) return at_ = words_.size(), false;
    ++at_;
    names_tool_ = true;
    training_.program = formatted("{} {}", name, verb);
    if (name == "trl" && verb != "sft") say("task", verb, words_[at_ - 1].line);
    if (name == "tune") {
      is_torchrun_ = true;
      options(&Command::torchrun_option);
      if (!is_done()) ++at_;  // the recipe's name
    }
    return false;
  }

  using ReadOption = void (Command::*)(const std::string& name, const std::string& value, int line);

  // Options of a launcher end at a word that is no option, or with the launched module.
  void options(ReadOption read) {
    while (!is_done()) {
      if (text().starts_with('$') && !text().ends_with(".py")) {  // options that only the shell knows
        counts_ = true;
        ++at_;
        continue;
      }
      const auto option = option_of(text());
      if (!option || option->name == "m" || option->name == "module") return;
      const int line = words_[at_].line;
      ++at_;
      if (option->value) {
        (this->*read)(option->name, *option->value, line);
      } else if (is_one_of(option->name, kAlone) || is_done() || option_of(text())) {
        (this->*read)(option->name, "", line);
      } else {
        (this->*read)(option->name, text(), line);
        ++at_;
      }
    }
  }

  void torchrun_option(const std::string& name, const std::string& value, int line) {
    if (name == "nproc_per_node") say_count(name, value, line);
    if (name == "nnodes") say_count(name, fixed_count(value), line);
  }

  // "2:2" is from two to two.
  static std::string fixed_count(const std::string& value) {
    const size_t colon = value.find(':');
    const bool is_fixed = colon != std::string::npos && value.substr(0, colon) == value.substr(colon + 1);
    return is_fixed ? value.substr(0, colon) : value;
  }

  void accelerate_option(const std::string& name, const std::string& value, int line) {
    if (name == "num_processes" || name == "num_machines") say_count(name, value, line);
    if (name == "mixed_precision" || name == "gradient_accumulation_steps" || name == "gradient_clipping" ||
        name == "zero_stage" || name.starts_with("parallelism_config_"))
      say(name, value, line);
    if (name == "config_file") say("accelerate_config", value, line);
    if (name == "deepspeed_config_file") say("deepspeed", value, line);
  }

  void deepspeed_option(const std::string& name, const std::string& value, int line) {
    if (name == "num_gpus") say_count("nproc_per_node", value, line);
    if (name == "num_nodes") say_count("nnodes", value, line);
    if (name == "include" || name == "i") count_slots(value, line);
    if (name == "hostfile" || name == "H" || name == "exclude" || name == "e") counts_ = true;  // elsewhere
  }

  // "localhost:0,1,2" or "worker-0:0,1@worker-1:0,1".
  void count_slots(const std::string& value, int line) {
    counts_ = true;
    int64_t slots = 0;
    for (const std::string& host : split(value, '@')) {
      const size_t colon = host.find(':');
      if (colon == std::string::npos || is_unresolved(host) || colon + 1 == host.size()) return;
      slots += std::count(host.begin() + static_cast<std::ptrdiff_t>(colon), host.end(), ',') + 1;
    }
    say("num_processes", std::to_string(slots), line);
  }

  // Programs that take each card they see for a process of their own (LLaMA-Factory 0.9.5 cli.py, DeepSpeed
  // launcher/runner.py), and a Python program that sees one.
  void count_visible() {
    const bool is_llama_factory = training_.program.starts_with("llamafactory");
    if (is_torchrun_ && !counts_) return say("nproc_per_node", "1", training_.line);
    if (is_swift(training_.program) && !counts_) return count_of_swift();
    const auto visible = variables_.value("CUDA_VISIBLE_DEVICES");
    if (counts_ || is_torchrun_ || !visible || visible->empty() || is_unresolved(*visible)) return;
    const auto cards = std::count(visible->begin(), visible->end(), ',') + 1;
    if (cards == 1 || is_deepspeed_ || is_llama_factory)
      if (!has("accelerate_config") && !has("world_size"))
        say("world_size", std::to_string(cards), training_.line);
  }

  // swift starts torchrun itself where the environment says how many (swift/cli/main.py).
  void count_of_swift() {
    for (const auto& [variable, key] :
         {std::pair{"NPROC_PER_NODE", "nproc_per_node"}, std::pair{"NNODES", "nnodes"}})
      if (const auto count = variables_.value(variable); count && !count->empty() && !has(key))
        say_count(key, *count, training_.line);
    if (!counts_) say("world_size", "1", training_.line);
  }

  // --key value, --key=value, --key a b c, --flag; key=value of torchtune; a file of YAML.
  void read_arguments() {
    while (!is_done()) {
      const int line = words_[at_].line;
      const std::string word = text();
      const auto option = option_of(word);
      ++at_;
      if (option) {
        read_argument(*option, line);
      } else if (is_recipe_file(word) && training_.config.empty()) {
        take_config(word, line);
      } else {
        say_word(word, line);
      }
    }
  }

  // key=value
  void say_word(const std::string& word, int line) {
    const size_t equals = word.find('=');
    if (equals != std::string::npos && equals > 0) say(word.substr(0, equals), word.substr(equals + 1), line);
  }

  void take_config(const std::string& file, int line) {
    training_.config = file;
    training_.line = line;
    names_tool_ = true;
  }

  void read_argument(const OptionWord& option, int line) {
    std::vector<std::string> values;
    if (option.value) values = {*option.value};
    while (!option.value && !is_done() && !option_of(text())) values.push_back(words_[at_++].text);
    if (is_one_of(option.name, kConfig) && !values.empty() && is_recipe_file(values.front())) {
      take_config(values.front(), line);
      for (size_t i = 1; i < values.size(); ++i) say_word(values[i], line);
      return;
    }
    if (values.empty()) return option.name == "deepspeed" ? void() : say(option.name, "true", line);
    if (values.size() == 1) return say_argument(option.name, values.front(), line);
    Node list;
    list.kind = Node::Kind::list;
    for (const std::string& value : values) {
      Node item;
      item.kind = Node::Kind::scalar;
      item.text = value;
      item.line = line;
      list.items.push_back(std::move(item));
    }
    say(option.name, std::move(list), line);
  }

  // A folder that only the shell can name cannot be written into, $RANDOM is any seed, and a stage of ZeRO
  // does not change the training's result.
  void say_argument(const std::string& name, const std::string& value, int line) {
    if ((name == "output_dir" || name == "run_name" || name == "seed" || name == "zero_stage") &&
        is_unresolved(value))
      return;
    if (name == "deepspeed" && (value == "true" || value.empty())) return;
    say(name, value, line);
  }

  Words words_;
  const ShellVariables& variables_;
  size_t at_ = 0;
  bool names_tool_ = false, counts_ = false, is_torchrun_ = false, is_deepspeed_ = false;
  ShellTraining training_;
};

}  // namespace

std::optional<ShellTraining> read_launch_command(const std::vector<LaunchWord>& words,
                                                 const ShellVariables& variables) {
  return words.empty() ? std::nullopt : Command(words, variables).read();
}

}  // namespace plimsoll
