// Reads tokenizers of folders without a tokenizer.json, as transformers makes them of a vocabulary and a
// class by name: BERT's vocab.txt, and vocab.json with merges.txt of GPT-2 and RoBERTa.
#pragma once

#include <filesystem>

#include "tokenizer/files/tokenizer_file.h"

namespace plimsoll {

// The contents of the tokenizer.json that transformers saves for the folder of `file`. Special tokens, cases
// and the class are those of tokenizer_config.json in that folder, else of config.json, else the family's.
// Throws UsageError for another class.
TokenizerFile read_vocabulary(const std::filesystem::path& file);

// Returns true for the vocabulary of such a folder: vocab.txt, or vocab.json next to a merges.txt.
bool is_vocabulary(const std::filesystem::path& file);

}  // namespace plimsoll
