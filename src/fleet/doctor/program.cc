// The kind of program that failed, by its messages and by its own words elsewhere in the log.
#include <algorithm>
#include <array>

#include "fleet/doctor/diagnosis.h"

namespace plimsoll::doctor {
namespace {

struct Family {
  std::string_view begins;  // of the names of rows
  Program program;
};
constexpr std::array kFamilies = {
    Family{"program.llamacpp_training", Program::llamacpp_training},
    Family{"program.llamacpp", Program::llamacpp},
    Family{"program.ollama", Program::ollama},
    Family{"program.server", Program::server},
    Family{"llamacpp.", Program::llamacpp},
    Family{"ggml.", Program::llamacpp},
    Family{"ollama.", Program::ollama},
    Family{"vllm.", Program::server},
    Family{"sglang.", Program::server},
    Family{"tgi.", Program::server},
    Family{"lmdeploy.", Program::server},
    Family{"mlc.", Program::server},
    Family{"exllama.", Program::server},
};

Program program_of_row(std::string_view name) {
  const auto found =
      std::ranges::find_if(kFamilies, [&](const Family& family) { return name.starts_with(family.begins); });
  return found == kFamilies.end() ? Program::unknown : found->program;
}

// A trainer may import a server, or sample by one: where it fails in a step of its own it trains.
bool fails_in_training(const Message& message) {
  constexpr std::array<std::string_view, 3> kPlaces = {"backward", "optimizer", "training"};
  return std::ranges::any_of(
      kPlaces, [&](std::string_view place) { return message.during.find(place) != std::string_view::npos; });
}

// Ollama starts llama.cpp, and llama.cpp's training uses all of its messages: the more particular one counts.
int rank_of(Program program) {
  constexpr std::array kRising = {Program::unknown, Program::server, Program::llamacpp, Program::ollama,
                                  Program::llamacpp_training};
  return static_cast<int>(std::ranges::find(kRising, program) - kRising.begin());
}

}  // namespace

Program program_of(const Evidence& evidence, const Message& failure) {
  if (fails_in_training(failure)) return Program::unknown;
  Program found = program_of_row(failure.row->name);
  for (const Message& message : evidence.messages) {
    const Program program = program_of_row(message.row->name);
    if (message.file == failure.file && rank_of(program) > rank_of(found)) found = program;
  }
  return found;
}

}  // namespace plimsoll::doctor
