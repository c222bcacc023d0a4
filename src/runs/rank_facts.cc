#include "runs/rank_facts.h"

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "files/file.h"
#include "ops/name_hash.h"
#include "recipe/effective.h"
#include "runs/checkpoint.h"
#include "runs/fingerprint.h"

namespace plimsoll {
namespace {

std::string hex_text(uint64_t value) {
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(value));
  return digits.data();
}

std::string hash_words(const std::string& text) { return hex_text(name_hash(text)); }

}  // namespace

RankFacts facts_of_recipe(const Recipe& recipe, const std::string& version, const std::string& kernels) {
  RankFacts facts = {{"version", version}, {"instruction set", kernels}};
  const nlohmann::json fingerprint = nlohmann::json::parse(run_fingerprint(recipe));
  for (const auto& [key, value] : fingerprint.items()) {
    if (!value.is_object()) {
      facts.emplace_back(key, value.dump());
      continue;
    }
    for (const auto& [part, of_part] : value.items())
      facts.emplace_back(formatted("{} ({})", key, part), of_part.dump());
  }
  // Keys that change no result, such as eval.every, still decide when ranks meet.
  facts.emplace_back("recipe (hash of all keys)", hash_words(effective_yaml(recipe)));
  return facts;
}

RankFacts facts_of_plan(const Plan& plan, int64_t total_steps, bool resumes, const std::string& output) {
  std::string programs;
  for (const Graph& program : plan.programs) programs += print_graph(program);
  RankFacts facts = {{"output", output},
                     {"number of steps", std::to_string(total_steps)},
                     {"plan (hash of its programs)", hash_words(programs)},
                     {"layout (hash)", hash_words(dump(plan, "layout"))}};
  const auto checkpoint = resumes ? latest_checkpoint(output) : std::nullopt;
  facts.emplace_back("checkpoint", checkpoint ? checkpoint->filename().string() : "none");
  if (checkpoint) {
    constexpr int64_t kMostBytes = 16 << 20;
    for (const char* name : {"trainer_state.json", "checksums.json"})
      if (std::filesystem::exists(*checkpoint / name))
        facts.emplace_back(formatted("checkpoint's {} (hash)", name),
                           hash_words(read_text(*checkpoint / name, kMostBytes)));
  }
  return facts;
}

}  // namespace plimsoll
