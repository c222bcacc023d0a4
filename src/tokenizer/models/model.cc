#include "tokenizer/models/model.h"

#include "base/format.h"

namespace plimsoll {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

}  // namespace

int byte_of_piece(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return -1;
  const int high = hex_digit(piece[3]);
  const int low = hex_digit(piece[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

std::array<int32_t, 256> byte_piece_ids(const PieceTable& vocab) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::array<int32_t, 256> ids{};
  for (size_t byte = 0; byte < ids.size(); ++byte)
    ids[byte] =
        vocab.find(std::string{'<', '0', 'x', kDigits[byte / 16], kDigits[byte % 16], '>'}).value_or(-1);
  return ids;
}

int32_t named_piece(const JsonPart& model, const char* key, const PieceTable& vocab) {
  const auto name = model.find(key);
  if (!name || name->text().empty()) return -1;
  const auto id = vocab.find(name->text());
  if (!id) name->damaged(formatted("\"{}\" is not in the vocabulary", name->text()));
  return *id;
}

std::unique_ptr<Model> make_model(const TokenizerFile& file, bool raw_bytes) {
  const std::string type = file.model_type();
  if (type == "BPE") return make_bpe(file, raw_bytes);
  if (type == "Unigram") return make_unigram(file);
  if (type == "WordPiece") return make_word_piece(file);
  if (type == "WordLevel") return make_word_level(file);
  file.model().refuse("model", type, "BPE, Unigram, WordPiece, WordLevel");
}

}  // namespace plimsoll
