// plimsoll demo: a plan, a refusal, a training and three questions, with files that the program carries.
#include "cli/model/demo_files.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/format.h"
#include "base/print.h"
#include "base/shell_word.h"
#include "cli/commands.h"
#include "files/atomic.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRecipe =
    "# A small decoder is trained on facts that are asked for in several ways, from random weights.\n"
    "model: model\n"
    "init: random # the folder has a shape and a tokenizer, but no weights\n"
    "data: {train: facts/train.parquet, format: prompt-response, max_length: 16}\n"
    "method: {type: full}\n"
    "batch: {effective: 16}\n"
    "optimizer: {name: adamw, lr: 1e-3, betas: [0.9, 0.99], eps: 1e-8, weight_decay: 0.3, max_grad_norm: 1.0}\n"
    "schedule: {name: cosine, warmup: 3%, epochs: 30}\n"
    "precision: fp32\n"
    "log: {every: 500}\n"
    "output: run\n";

struct DemoArguments {
  std::string folder = "plimsoll-demo";
  int64_t steps = 0;  // 0: as the recipe says
};

void write_files(const fs::path& folder) {
  std::error_code unknown;
  if (fs::exists(fs::symlink_status(folder, unknown)))
    throw UsageError(
        formatted("{}: is there already: remove it, or name another folder with --folder", folder.string()));
  for (const DemoFile& file : demo_files()) {
    fs::create_directories((folder / file.name).parent_path());
    write_file_atomically(folder / file.name, file.content);
  }
  write_file_atomically(folder / "recipe.yaml", kRecipe);
}

// The program's own command, as it would be typed; Ctrl-C is the child's, which ends by it.
int run_own(const std::vector<std::string>& words) {
  std::string typed = "\n$ plimsoll";
  for (const std::string& word : words) typed += " " + quoted(word);
  print(typed + "\n");
  flush_output();
  std::vector<char*> arguments = {const_cast<char*>("plimsoll")};
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t usual;
  sigemptyset(&usual);
  sigaddset(&usual, SIGINT);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  const auto before = std::signal(SIGINT, SIG_IGN);
  pid_t child = 0;
  const int failed = posix_spawn(&child, "/proc/self/exe", nullptr, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  int status = 0;
  while (failed == 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  std::signal(SIGINT, before);
  if (failed != 0) throw StoppedError(formatted("the demo's next command: {}", std::strerror(failed)));
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// One that must end so; with another code the demo ends.
void expect(ExitCode wanted, const std::vector<std::string>& words) {
  const int code = run_own(words);
  if (code == static_cast<int>(wanted)) return;
  if (code == static_cast<int>(ExitCode::interrupted) || code == 128 + SIGINT)
    throw Error(ExitCode::interrupted, "the demo was interrupted");
  throw StoppedError(formatted("the demo's command ended with exit code {}", code));
}

ExitCode run(const DemoArguments& arguments) {
  const fs::path folder = arguments.folder;
  write_files(folder);
  const std::string recipe = (folder / "recipe.yaml").string(), result = (folder / "run").string();
  print(formatted("Everything is written to {}. First the plan: every byte, before anything is loaded.\n",
                  printable(folder.string())));
  expect(ExitCode::ok, {"plan", recipe, "--no-probe"});
  print("\nThe same run in 1 MiB is refused at once (exit code 3), with what is missing.\n");
  expect(ExitCode::does_not_fit, {"plan", recipe, "--no-probe", "--memory", "1MiB"});
  print("\nThen it runs, in just those bytes.\n");
  std::vector<std::string> train = {"train", recipe, "--no-probe"};
  if (arguments.steps > 0) train.push_back(formatted("--set=schedule.max_steps={}", arguments.steps));
  expect(ExitCode::ok, train);
  print("\nEach fact and each phrase was trained, but never these pairs of them.\n");
  for (const char* const question :
       {"Name the capital city of Nigeria.", "Name the antonym of early.", "Which word means a young frog?"})
    expect(ExitCode::ok, {"generate", result, "--prompt", question, "--max-new-tokens", "8"});
  print("\nAll of the questions that were held out:\n");
  expect(ExitCode::ok, {"generate", result, "--data", (folder / "facts/heldout.parquet").string()});
  print(formatted("\nNext:\n  plimsoll report {}\n  plimsoll chat {}\n  plimsoll fit qwen2.5-1.5b\n",
                  quoted(result), quoted(result)));
  return ExitCode::ok;
}

}  // namespace

void add_demo(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<DemoArguments>();
  CLI::App* command = app.add_subcommand("demo", "plan, train and ask a small model, in half a minute");
  command->add_option("--folder", arguments->folder, "write here; must not exist")
      ->type_name("FOLDER")
      ->capture_default_str();
  command
      ->add_option("--steps", arguments->steps,
                   "optimizer steps of the training; by default all of the recipe")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}))
      ->type_name("COUNT");
  command->callback([arguments, &action] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace plimsoll
