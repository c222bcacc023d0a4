// The parts of a tokenizer, whichever file it came from.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tokenizer/files/tokenizer_file.h"
#include "tokenizer/models/model.h"
#include "tokenizer/steps/added_tokens.h"
#include "tokenizer/steps/decoder.h"
#include "tokenizer/steps/normalizer.h"
#include "tokenizer/steps/post_processor.h"
#include "tokenizer/steps/pre_tokenizer.h"
#include "tokenizer/tokenizer.h"

namespace plimsoll {

struct Tokenizer::Parts {
  std::unique_ptr<Normalizer> normalizer;  // may be null
  PreTokenizerChain pre_tokenizer;
  std::unique_ptr<Model> model;
  AddedTokens added;
  Affixes affixes;
  Decoder decoder;
  std::vector<std::string> notes;
  // Bytes that each id stands for, 0 for an unknown one; empty unless the tokens of a text in its normal form
  // stand for its bytes one after another, wherever their sum is its size.
  std::vector<uint16_t> lengths{};
};

Tokenizer::Parts make_parts(const TokenizerFile& file);
// Makes the parts of a SentencePiece model. `where` names it in errors.
Tokenizer::Parts make_sentence_piece_parts(std::string_view model, const std::string& where);

}  // namespace plimsoll
