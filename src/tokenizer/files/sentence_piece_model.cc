#include "tokenizer/files/sentence_piece_model.h"

#include "base/error.h"
#include "base/format.h"
#include "tokenizer/files/protobuf.h"
#include "unicode/utf8.h"

namespace plimsoll {
namespace {

// Field numbers of sentencepiece_model.proto.
namespace model_field {
constexpr uint32_t kPieces = 1, kTrainerSpec = 2, kNormalizerSpec = 3, kDenormalizerSpec = 5;
}
namespace piece_field {
constexpr uint32_t kText = 1, kScore = 2, kType = 3;
}
namespace trainer_field {
constexpr uint32_t kModelType = 3, kSpaceAsSuffix = 24, kByteFallback = 35;
}
namespace normalizer_field {
constexpr uint32_t kCharsmap = 2, kAddDummyPrefix = 3, kRemoveExtraSpaces = 4, kEscapeSpaces = 5;
}

SentencePieceModel::Piece read_piece(std::string_view bytes, size_t id, const std::string& where) {
  SentencePieceModel::Piece piece;
  const std::string place = formatted("{}: piece {}", where, id);
  ProtoReader reader(bytes, place);
  while (const auto field = reader.next()) {
    if (field->number == piece_field::kText) piece.text = field->bytes;
    if (field->number == piece_field::kScore) piece.score = field->fixed32;
    if (field->number == piece_field::kType) {
      if (field->varint < 1 || field->varint > 6) throw DamagedError(place + ": its type is unknown");
      piece.type = static_cast<SentencePieceModel::Type>(field->varint);
    }
  }
  if (piece.text.empty() || !is_valid_utf8(piece.text)) throw DamagedError(place + ": is empty or no UTF-8");
  return piece;
}

void read_trainer_spec(std::string_view bytes, const std::string& where, SentencePieceModel& model) {
  ProtoReader reader(bytes, where);
  while (const auto field = reader.next()) {
    if (field->number == trainer_field::kModelType) {
      if (field->varint < 1 || field->varint > 4) throw DamagedError(where + ": its model type is unknown");
      model.kind = static_cast<SentencePieceModel::Kind>(field->varint);
    }
    if (field->number == trainer_field::kSpaceAsSuffix) model.space_as_suffix = field->varint != 0;
    if (field->number == trainer_field::kByteFallback) model.byte_fallback = field->varint != 0;
  }
}

void read_normalizer_spec(std::string_view bytes, const std::string& where, SentencePieceModel& model) {
  ProtoReader reader(bytes, where);
  while (const auto field = reader.next()) {
    if (field->number == normalizer_field::kCharsmap) model.charsmap = field->bytes;
    if (field->number == normalizer_field::kAddDummyPrefix) model.add_dummy_prefix = field->varint != 0;
    if (field->number == normalizer_field::kRemoveExtraSpaces) model.remove_extra_spaces = field->varint != 0;
    if (field->number == normalizer_field::kEscapeSpaces) model.escape_spaces = field->varint != 0;
  }
}

bool has_charsmap(std::string_view bytes, const std::string& where) {
  SentencePieceModel model;
  read_normalizer_spec(bytes, where, model);
  return !model.charsmap.empty();
}

}  // namespace

SentencePieceModel read_sentence_piece_model(std::string_view bytes, const std::string& where) {
  SentencePieceModel model;
  ProtoReader reader(bytes, where);
  while (const auto field = reader.next()) {
    if (field->type != ProtoField::Type::bytes) continue;
    if (field->number == model_field::kPieces)
      model.pieces.push_back(read_piece(field->bytes, model.pieces.size(), where));
    if (field->number == model_field::kTrainerSpec) read_trainer_spec(field->bytes, where, model);
    if (field->number == model_field::kNormalizerSpec) read_normalizer_spec(field->bytes, where, model);
    if (field->number == model_field::kDenormalizerSpec)
      model.has_denormalizer = has_charsmap(field->bytes, where);
  }
  if (model.pieces.empty()) throw DamagedError(where + ": has no pieces: this is not a SentencePiece model");
  return model;
}

}  // namespace plimsoll
