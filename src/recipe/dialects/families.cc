#include "recipe/dialects/families.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

namespace plimsoll {
namespace {

// Words of names on the hub and of torchtune's modules. Words for vision or experts come first: such models
// carry the names of families that exist.
constexpr auto kWords =
    std::to_array<std::pair<std::string_view, std::string_view>>({{"mixtral", "mixtral (mixture of experts)"},
                                                                  {"a22b", "mixture of experts"},
                                                                  {"a3b", "mixture of experts"},
                                                                  {"a10b", "mixture of experts"},
                                                                  {"a17b", "mixture of experts"},
                                                                  {"a400m", "mixture of experts"},
                                                                  {"a800m", "mixture of experts"},
                                                                  {"moe", "mixture of experts"},
                                                                  {"vl", "a model of images and text"},
                                                                  {"vision", "a model of images and text"},
                                                                  {"llava", "llava"},
                                                                  {"pixtral", "pixtral"},
                                                                  {"gemma", "gemma"},
                                                                  {"phi", "phi"},
                                                                  {"falcon", "falcon"},
                                                                  {"pythia", "gpt-neox"},
                                                                  {"cerebras", "gpt2"},
                                                                  {"gpt2", "gpt2"},
                                                                  {"gpt", "gpt"},
                                                                  {"mpt", "mpt"},
                                                                  {"bloom", "bloom"},
                                                                  {"opt", "opt"},
                                                                  {"chatglm", "chatglm"},
                                                                  {"glm", "glm"},
                                                                  {"baichuan", "baichuan"},
                                                                  {"internlm", "internlm"},
                                                                  {"jamba", "jamba"},
                                                                  {"mamba", "mamba"},
                                                                  {"dbrx", "dbrx"},
                                                                  {"starcoder", "starcoder"},
                                                                  {"starcoder2", "starcoder2"},
                                                                  {"stablelm", "stablelm"},
                                                                  {"cohere", "cohere"},
                                                                  {"c4ai", "cohere"},
                                                                  {"olmo", "olmo"},
                                                                  {"deepseek", "deepseek"},
                                                                  {"minimax", "minimax"},
                                                                  {"llama4", "llama4"},
                                                                  {"scout", "llama4"},
                                                                  {"maverick", "llama4"}});

// Families of which some later ones exist, by the number behind the name.
constexpr auto kLater = std::to_array<std::array<std::string_view, 3>>(
    {{"gemma", "2", "3"}, {"olmo", "2", "3"}, {"phi", "3", "4"}});

// Returns whether word `at` is of a family that exists: "gemma" of google/gemma-3-1b-it.
bool is_later(const std::vector<std::string>& words, size_t at) {
  return at + 1 < words.size() && std::ranges::any_of(kLater, [&](const auto& later) {
           return words[at] == later[0] && (words[at + 1] == later[1] || words[at + 1] == later[2]);
         });
}

}  // namespace

std::optional<std::string> unsupported_family(std::string_view name) {
  std::vector<std::string> words(1);
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (!words.back().empty())
      words.emplace_back();
  }
  if (words.back().empty()) words.pop_back();  // the name ends with a mark
  const auto has_part = [&](std::string_view part) {
    return std::any_of(words.begin(), words.end(),
                       [&](const std::string& word) { return word.starts_with(part); });
  };
  // A distilled model is of the smaller model's family: DeepSeek-R1-Distill-Qwen-7B.
  if (has_part("distill") && (has_part("qwen") || has_part("llama") || has_part("mistral")))
    return std::nullopt;
  for (const auto& [word, family] : kWords)
    for (size_t at = 0; at < words.size(); ++at)
      if (words[at] == word && !is_later(words, at)) return std::string(family);
  return std::nullopt;
}

}  // namespace plimsoll
