// Tokenises conversations piece by piece, as LLaMA-Factory, axolotl and torchtune do it.
#pragma once

#include <vector>

#include "chat/chat_template.h"
#include "data/encode/example.h"
#include "tokenizer/tokenizer.h"

namespace plimsoll {

struct PieceOptions {
  TemplateRules rules;
  bool train_on_prompt = false;
  int64_t max_length = 1024;
  int32_t eos = 0;
};

// Sets ids, labels and the length before anything was cut.
void encode_pieces(const Tokenizer& tokenizer, const TrainingText& rendered, const PieceOptions& options,
                   Example& example);

}  // namespace plimsoll
