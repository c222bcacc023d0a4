// Texts as token ids whose next tokens are trained on.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/encode/cut.h"
#include "data/encode/example.h"

namespace plimsoll {

// Appends the ids of a text, without any special token of its own.
using Tokenize = std::function<void(std::string_view, std::vector<int32_t>&)>;

// The rules by which a text becomes ids.
struct TextRules {
  Tokenize tokenize = {};
  int32_t eos = 0;                  // appended to a response or text that does not end with it
  std::vector<int32_t> begin = {};  // before texts and prompts
};

// Prompt and response are tokenised apart: a token across their border would be half prompt, half target, and
// generation, which sees the prompt alone, could never meet it.
void encode_text(const TextRules& rules, bool train_on_prompt, std::string_view prompt,
                 std::string_view response, Example& example);
// Encodes both as one text; the trained part begins where its tokens and those of the prompt alone part.
void encode_joined(const TextRules& rules, bool train_on_prompt, const std::string& prompt,
                   const std::string& response, Example& example);

// Cuts a sequence whose next tokens are trained on, and counts its targets.
void finish_tokens(const CutRule& cut, const Where& where, Example& example);

}  // namespace plimsoll
