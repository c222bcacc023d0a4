// A SentencePiece model file (tokenizer.model, spiece.model): its protocol buffer as values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

struct SentencePieceModel {
  // The numbers are those of the file.
  enum class Type : uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  enum class Kind : uint8_t { unigram = 1, bpe = 2, word = 3, character = 4 };
  struct Piece {
    std::string text;
    float score = 0;
    Type type = Type::normal;
  };

  std::vector<Piece> pieces;  // the position is the id
  Kind kind = Kind::unigram;
  bool byte_fallback = false;
  bool space_as_suffix = false;
  std::string charsmap;  // see charsmap.h; may be empty
  bool add_dummy_prefix = true;
  bool remove_extra_spaces = true;
  bool escape_spaces = true;
  bool has_denormalizer = false;
};

// Throws DamagedError, naming `where`.
SentencePieceModel read_sentence_piece_model(std::string_view bytes, const std::string& where);

}  // namespace plimsoll
