// Converts a model folder to one GGUF file, for llama.cpp and what is built on it, in bounded memory.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "chat/chat_template.h"
#include "formats/gguf.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/tokenizer.h"
#include "tools/gguf_kinds.h"

namespace plimsoll {

struct GgufOptions {
  std::filesystem::path folder;  // a model, not an adapter
  std::filesystem::path out;     // a file that must not exist yet
  std::optional<GgufKind> kind;  // none: matrices as they are stored. Vectors are always f32
};

struct GgufResult {
  int64_t tensors = 0, bytes = 0;
  std::vector<std::string> notes;  // where the file does not hold all that the model is
  bool card = false;               // a README.md was written next to the file
};

// The file appears whole or not at all, with a model card next to it where its folder holds nothing but GGUF
// files. Throws UsageError for adapters, quantised weights, what GGUF cannot hold (tokenizers and RoPE
// scalings, by their name) and an output that exists.
GgufResult convert_to_gguf(const GgufOptions& options);

// Returns the bytes of the file that the folder would become; reads no weights. Throws as convert_to_gguf does
// for what GGUF cannot hold.
int64_t gguf_file_bytes(const GgufOptions& options);

// The token that ends an answer of the chat template, where the model's end tokens are others.
std::optional<int32_t> turn_end_beside(const SpecialTokens& special, const Tokenizer& tokenizer,
                                       const std::optional<ChatTemplate>& chat);

// The tokenizer's keys, for an embedding of `rows` rows.
void add_gguf_tokenizer(const std::filesystem::path& folder, int64_t rows, GgufHead& head);

}  // namespace plimsoll
