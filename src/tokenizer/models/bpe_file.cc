// BPE as tokenizer.json writes it.
#include "base/format.h"
#include "tokenizer/models/bpe.h"

namespace plimsoll {
namespace {

int32_t id_of(const PieceTable& vocab, const std::string& piece, const JsonPart& model) {
  if (const auto id = vocab.find(piece)) return *id;
  model.damaged(formatted("a merge names \"{}\", which is not in the vocabulary", piece));
}

MergeTable make_merges(const TokenizerFile& file, const PieceTable& vocab, const std::string& prefix) {
  const JsonPart model = file.model();
  MergeTable table(file.merges.size());
  int32_t rank = 0;
  for (const auto& [left, right] : file.merges) {
    const int32_t left_id = id_of(vocab, left, model);
    const int32_t right_id = id_of(vocab, right, model);
    // The right part is spelled with the prefix of continuing symbols, the joined piece without it.
    if (right.size() < prefix.size())
      model.damaged(formatted("a merge names \"{}\", which lacks the continuing_subword_prefix", right));
    table.insert(left_id, right_id, {rank++, id_of(vocab, left + right.substr(prefix.size()), model)});
  }
  return table;
}

}  // namespace

bool reads_raw_bytes(const TokenizerFile& file) {
  const JsonPart model = file.model();
  return file.model_type() == "BPE" && !model.flag_or("byte_fallback", false) &&
         model.text_or("continuing_subword_prefix", "").empty() &&
         model.text_or("end_of_word_suffix", "").empty();
}

std::unique_ptr<Model> make_bpe(const TokenizerFile& file, bool raw_bytes) {
  const JsonPart model = file.model();
  if (model.number_or("dropout", 0) != 0)
    model.at("dropout").refuse("setting", "dropout", "BPE without dropout, which always gives the same ids");
  if (file.vocab_is_list) model.at("vocab").damaged("expected an object of pieces and ids");
  PieceTable vocab(file.vocab, file.name);
  BpeOptions options{.raw_bytes = raw_bytes,
                     .fuse_unk = model.flag_or("fuse_unk", false),
                     .byte_fallback = model.flag_or("byte_fallback", false),
                     .ignore_merges = model.flag_or("ignore_merges", false),
                     .unk_id = named_piece(model, "unk_token", vocab),
                     .prefix = model.text_or("continuing_subword_prefix", ""),
                     .suffix = model.text_or("end_of_word_suffix", "")};
  MergeTable merges = make_merges(file, vocab, options.prefix);
  return std::make_unique<Bpe>(std::move(vocab), std::move(merges), std::move(options));
}

}  // namespace plimsoll
