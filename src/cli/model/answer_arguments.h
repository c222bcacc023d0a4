// Options of the commands that run a model on prompts or rows: generate, chat, eval, score, classify.
#pragma once

#include <CLI/App.hpp>
#include <string>

#include "infer/row_program.h"

namespace plimsoll {

// Beyond every model's positions, small enough that sizes in bytes cannot overflow.
inline constexpr int64_t kMostTokens = int64_t{1} << 24;

class AnswerArguments {
 public:
  // The folder and --adapter.
  void add_model(CLI::App& command, AnswerOptions& options);
  // --set.
  static void add_sets(CLI::App& command, std::vector<std::string>& sets);
  // --data, --set, and how many of its rows at which length and at a time; --out. The helps are of --data and
  // --out.
  static void add_rows(CLI::App& command, RowOptions& options, const std::string& data,
                       const std::string& out);
  static void add_template(CLI::App& command, AnswerOptions& options);
  static void add_system(CLI::App& command, AnswerOptions& options);
  // --thinking.
  void add_thinking(CLI::App& command);
  // --max-new-tokens, --stop, --context, and how tokens are chosen.
  void add_choices(CLI::App& command, AnswerOptions& options);
  // --num-beams and what belongs to it.
  void add_beams(CLI::App& command, AnswerOptions& options);
  // --precision, --device, --max-isa, --threads.
  void add_machine(CLI::App& command, AnswerOptions& options);
  void add_json(CLI::App& command);
  [[nodiscard]] bool json() const { return json_; }
  // Once the command line is read. Throws UsageError.
  void finish(AnswerOptions& options) const;

 private:
  std::string max_isa_, precision_, early_stopping_ = "false", graphs_, thinking_;
  std::vector<std::string> stops_;
  bool json_ = false;
};

}  // namespace plimsoll
