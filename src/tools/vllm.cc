#include "tools/vllm.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/format.h"
#include "base/shell_word.h"

namespace plimsoll {
namespace {

// The values that --max-lora-rank may have.
constexpr std::array<int64_t, 9> kRanks = {1, 8, 16, 32, 64, 128, 256, 320, 512};

bool is_table_or_head(const std::string& module) {
  return module.ends_with("embed_tokens") || module.ends_with("lm_head") || module.ends_with("shared") ||
         module.ends_with("word_embeddings");
}

}  // namespace

void require_family_of_vllm(const std::filesystem::path& folder, const ModelSpec& model) {
  if (!model.encoder_decoder && !model.linear_attention) return;
  throw UsageError(
      formatted("{}: vLLM has no {}; transformers loads the merged model: plimsoll export {} --to merged",
                folder.string(), model.architecture, quoted(folder.string())));
}

void require_served_by_vllm(const std::filesystem::path& adapter, const LoraOptions& lora) {
  const auto refuse = [&](const std::string& what) {
    throw UsageError(
        formatted("{}: vLLM serves no adapter with {}; export the merged model, which it serves: plimsoll "
                  "export {} --to merged",
                  adapter.string(), what, quoted(adapter.string())));
  };
  if (lora.dora) refuse("DoRA (use_dora)");
  if (!lora.modules_to_save.empty()) refuse("modules that are saved whole (modules_to_save)");
  if (!lora.rank_pattern.empty() || !lora.alpha_pattern.empty())
    refuse("ranks or alphas of single modules (rank_pattern, alpha_pattern): it takes one of each");
  if (std::any_of(lora.targets.begin(), lora.targets.end(), is_table_or_head))
    refuse("the embedding or the head among target_modules");
  if (lora.r > kRanks.back()) refuse(formatted("a rank of {}: {} is its largest", lora.r, kRanks.back()));
}

int64_t vllm_rank(const LoraOptions& lora) {
  return *std::find_if(kRanks.begin(), kRanks.end(), [&](int64_t rank) { return rank >= lora.r; });
}

}  // namespace plimsoll
