#include "hub/fetch.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/print.h"
#include "base/units.h"
#include "cli/commands.h"
#include "models/family.h"
#include "recipe/model_files.h"

namespace plimsoll {
namespace {

struct FetchArguments {
  hub::FetchOptions options;
  bool config_only = false, dataset = false, json = false;
};

// One line that is drawn over on a terminal, ten times a second at most; nothing elsewhere.
class FetchLine {
 public:
  ~FetchLine() { clear(); }
  void draw(const hub::FetchProgress& progress) {
    const auto now = std::chrono::steady_clock::now();
    if (first_bytes_ < 0) {
      first_bytes_ = progress.bytes;
      start_ = now;
    }
    if (isatty(STDERR_FILENO) == 0 || now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    const double seconds = std::chrono::duration<double>(now - start_).count();
    const double rate = seconds < 1 ? 0 : static_cast<double>(progress.bytes - first_bytes_) / seconds;
    std::string line =
        formatted("fetch  {} of {}", format_bytes(progress.bytes), format_bytes(progress.total));
    if (rate > 0)
      line += formatted(" · {}/s · {} left", format_bytes(static_cast<int64_t>(rate)),
                        format_seconds(static_cast<double>(progress.total - progress.bytes) / rate));
    std::fprintf(stderr, "\r\033[K%s", line.c_str());
    drawn_ = true;
  }
  void clear() {
    if (drawn_) std::fputs("\r\033[K", stderr);
    drawn_ = false;
  }

 private:
  std::chrono::steady_clock::time_point start_, last_;
  int64_t first_bytes_ = -1;
  bool drawn_ = false;
};

// Pasted from a browser: "https://huggingface.co/datasets/org/rows".
void read_address(FetchArguments& arguments) {
  std::string& name = arguments.options.name;
  for (const std::string_view start : {"https://huggingface.co/", "http://huggingface.co/", "hf://"})
    if (name.starts_with(start)) name.erase(0, start.size());
  if (name.starts_with("datasets/")) {
    name.erase(0, std::string_view("datasets/").size());
    arguments.dataset = true;
  }
  while (name.ends_with('/')) name.pop_back();
}

nlohmann::ordered_json fetch_json(const hub::FetchOptions& options, const hub::FetchResult& result) {
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const hub::HubFile& file : result.files) files.push_back({{"name", file.name}, {"bytes", file.bytes}});
  return {{"name", options.name},  {"revision", result.commit},   {"folder", result.folder.string()},
          {"bytes", result.bytes}, {"received", result.received}, {"files", files}};
}

// The reason why the fetched model is not trained; "" if it is, or if its files do not show that.
std::string why_not_trained(const std::filesystem::path& folder) try {
  ModelFiles().spec(folder);
  return "";
} catch (const UsageError& error) {
  return error.what();
} catch (const Error&) {
  return "";
}

ExitCode run(FetchArguments& arguments) {
  read_address(arguments);
  if (arguments.dataset && arguments.config_only)
    throw UsageError(
        "fetch: --config-only is for models; a data set has no configuration, only files of rows");
  hub::FetchOptions& options = arguments.options;
  options.kind = arguments.dataset ? HubKind::dataset : HubKind::model;
  options.wanted = arguments.config_only ? hub::Wanted::config_only : hub::Wanted::all;
  const bool is_model = options.kind == HubKind::model;
  if (const std::string refusal = is_model ? refusal_of_name(options.name) : ""; !refusal.empty())
    say(formatted("note    {}: plimsoll does not train models of this name: {}", printable(options.name),
                  refusal));
  FetchLine line;
  const hub::FetchResult result =
      hub::fetch(options, {.progress = [&](const hub::FetchProgress& progress) { line.draw(progress); },
                           .say =
                               [&](const std::string& note) {
                                 line.clear();
                                 say("note    " + note);
                               }});
  line.clear();
  if (arguments.json) {
    print(json_text(fetch_json(options, result)));
    return ExitCode::ok;
  }
  const auto files = static_cast<int64_t>(result.files.size());
  print(formatted("fetched  {} · {} · {}{}\nfolder   {}\n", printable(options.name),
                  files == 1 ? "1 file" : format_count(files) + " files", format_bytes(result.bytes),
                  result.received == 0 ? ", all here already" : "", printable(result.folder.string())));
  const std::string why_not = is_model ? why_not_trained(result.folder) : "";
  if (!why_not.empty())
    say(formatted("note    fetched for other programs: {}", why_not));
  else if (is_model)
    print(formatted("plan     plimsoll plan {}\n", printable(options.name)));
  return ExitCode::ok;
}

}  // namespace

void add_fetch(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<FetchArguments>();
  CLI::App* command = app.add_subcommand("fetch", "download a model or data set from the Hugging Face hub");
  command->add_option("name", arguments->options.name, "such as Qwen/Qwen2.5-0.5B")
      ->required()
      ->type_name("NAME");
  command->add_flag("--config-only", arguments->config_only, "download only what `plan` needs, no weights");
  command->add_flag("--dataset", arguments->dataset, "NAME is a data set: download its data files");
  command->add_option("--revision", arguments->options.revision, "a branch, a tag or a commit")
      ->type_name("NAME")
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "JSON output");
  command->callback([arguments, &action] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace plimsoll
