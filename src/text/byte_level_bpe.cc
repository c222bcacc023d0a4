#include "text/byte_level_bpe.h"

#include <atomic>

#include "text/bpe_merge.h"
#include "text/byte_level.h"
#include "text/word_cache.h"

namespace plimsoll {
namespace {

std::atomic<uint64_t> next_serial{1};

// One long word must not hold its memory for the rest of the thread: 64 KiB is kept.
constexpr size_t kMostKeptSymbols = 1 << 14;

// Settings that would change the ids and that byte-level models do not use.
void refuse_other_kinds(const Json& model, const std::string& where) {
  const auto refuse = [&](const std::string& what) {
    refuse_component(where, "model", "BPE with " + what, "BPE over bytes, without it");
  };
  if (value_or(model, "dropout", 0.0) != 0.0) refuse("dropout");
  if (value_or(model, "byte_fallback", false)) refuse("byte_fallback");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!value_or(model, key, std::string()).empty()) refuse(key);
}

int32_t id_of(const PieceTable& vocab, const std::string& piece, const std::string& where) {
  if (const auto id = vocab.find(piece)) return *id;
  throw DamagedError(where + ": a merge names \"" + piece + "\", which is not in the vocabulary");
}

MergeTable make_merges(const TokenizerFile& file, const PieceTable& vocab, const std::string& where) {
  MergeTable table(file.merges.size());
  int32_t rank = 0;
  for (const auto& [left, right] : file.merges) {
    const int32_t left_id = id_of(vocab, left, where);
    const int32_t right_id = id_of(vocab, right, where);
    table.insert(left_id, right_id, {rank++, id_of(vocab, left + right, where)});
  }
  return table;
}

}  // namespace

ByteLevelBpe::ByteLevelBpe(const TokenizerFile& file, const std::string& where)
    : serial_(next_serial++),
      vocab_(file.vocab, where),
      merges_(make_merges(file, vocab_, where)),
      fuse_unk_(value_or(file.head.at("model"), "fuse_unk", false)),
      ignore_merges_(value_or(file.head.at("model"), "ignore_merges", false)) {
  const Json& model = file.head.at("model");
  refuse_other_kinds(model, where);
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte)
    byte_ids_[byte] = vocab_.find(byte_level_char(static_cast<unsigned char>(byte))).value_or(-1);
  if (const auto unk = value_or(model, "unk_token", std::string()); !unk.empty()) {
    const auto id = vocab_.find(unk);
    if (!id) throw DamagedError(where + ": the unk_token \"" + unk + "\" is not in the vocabulary");
    unk_id_ = *id;
  }
}

void ByteLevelBpe::tokenize(std::string_view word, std::vector<int32_t>& out) const {
  WordCache& cache = WordCache::of_thread(serial_);
  if (const auto ids = cache.find(word); !ids.empty()) {
    out.insert(out.end(), ids.begin(), ids.end());
    return;
  }
  thread_local std::vector<int32_t> symbols;
  symbols.clear();
  tokenize_uncached(word, symbols);
  cache.put(word, symbols);
  out.insert(out.end(), symbols.begin(), symbols.end());
  if (symbols.capacity() > kMostKeptSymbols) symbols = std::vector<int32_t>();
}

void ByteLevelBpe::tokenize_uncached(std::string_view word, std::vector<int32_t>& symbols) const {
  if (ignore_merges_) {
    std::string piece;
    append_byte_level(word, piece);
    if (const auto id = vocab_.find(piece)) return symbols.push_back(*id);
  }
  bool after_unknown = false;
  for (const char c : word) {
    const int32_t id = byte_ids_[static_cast<unsigned char>(c)];
    // A byte the vocabulary lacks becomes unk, or nothing where there is no unk: as in the reference.
    const bool unknown = id < 0;
    if (!unknown)
      symbols.push_back(id);
    else if (unk_id_ >= 0 && !(fuse_unk_ && after_unknown))
      symbols.push_back(unk_id_);
    after_unknown = unknown;
  }
  merge_symbols(merges_, symbols);
}

int64_t ByteLevelBpe::resident_bytes() const {
  return vocab_.resident_bytes() + merges_.resident_bytes() + WordCache::kBytes +
         static_cast<int64_t>(sizeof *this);
}

std::unique_ptr<Model> make_model(const TokenizerFile& file, bool byte_level, const std::string& where) {
  constexpr std::string_view kSupported = "BPE over bytes (with the ByteLevel pre-tokenizer)";
  const std::string type = file.model_type();
  if (type != "BPE") refuse_component(where, "model", type, kSupported);
  if (!byte_level) refuse_component(where, "model", "BPE without a ByteLevel pre-tokenizer", kSupported);
  return std::make_unique<ByteLevelBpe>(file, where);
}

}  // namespace plimsoll
