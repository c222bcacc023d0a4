#include "tokenizer/tokenizer_parts.h"

#include <algorithm>
#include <array>

#include "base/format.h"
#include "tokenizer/models/byte_level.h"
#include "tokenizer/steps/unicode_form.h"

namespace plimsoll {
namespace {

JsonPart at_or_null(const JsonPart& root, const char* key) {
  static const nlohmann::json null;
  return root.has(key) ? root.at(key) : JsonPart(null, root.file());
}

// The steps of a component, those of sequences in it counted one by one.
size_t count_steps(const JsonPart& json, const char* list) {
  if (json.is_null() || !json.has(list)) return 1;
  size_t steps = 0;
  for (const JsonPart& step : json.at(list).items()) steps += count_steps(step, list);
  return steps;
}

// Every step goes through the whole of every text.
void require_few_steps(const JsonPart& root) {
  constexpr size_t kMost = 100;  // those in use have ten
  constexpr std::array<std::array<const char*, 2>, 3> kLists = {
      {{"normalizer", "normalizers"}, {"pre_tokenizer", "pretokenizers"}, {"decoder", "decoders"}}};
  for (const auto& [part, list] : kLists)
    if (const size_t steps = count_steps(at_or_null(root, part), list); steps > kMost)
      throw UsageError(
          formatted("{}: {}: has {} steps, at most {} are run", root.file(), part, steps, kMost));
}

std::vector<std::string> ignored_parts(const JsonPart& root) {
  std::vector<std::string> notes;
  for (const char* key : {"truncation", "padding"})
    if (root.find(key))
      notes.push_back(formatted("\"{}\" in tokenizer.json is ignored: the recipe decides on lengths", key));
  return notes;
}

// Returns true if a text's tokens may lack some of its bytes, but have none in addition to them.
bool adds_no_bytes(const Tokenizer::Parts& parts) {
  if (parts.normalizer && dynamic_cast<const UnicodeForm*>(parts.normalizer.get()) == nullptr) return false;
  if (!parts.pre_tokenizer.byte_level || parts.pre_tokenizer.adds) return false;
  if (!parts.decoder.is_byte_level()) return false;
  for (int byte = 0; byte < 256; ++byte)  // else a token for what is unknown takes its place
    if (!parts.model->vocab().find(byte_level_char(static_cast<unsigned char>(byte)))) return false;
  return true;
}

std::vector<uint16_t> lengths_of(const Tokenizer::Parts& parts) {
  const PieceTable& vocab = parts.model->vocab();
  if (!adds_no_bytes(parts)) return {};
  std::vector<uint16_t> lengths(static_cast<size_t>(std::max(vocab.end_id(), parts.added.end_id())));
  std::string bytes;
  for (size_t id = 0; id < lengths.size(); ++id) {
    bytes.clear();
    if (const AddedToken* added = parts.added.find(static_cast<int32_t>(id)))
      bytes = added->spelling;
    else
      append_bytes_of_token(vocab.piece(static_cast<int32_t>(id)), bytes);
    if (bytes.size() > UINT16_MAX) return {};
    lengths[id] = static_cast<uint16_t>(bytes.size());
  }
  return lengths;
}

}  // namespace

Tokenizer::Parts make_parts(const TokenizerFile& file) {
  const JsonPart root = file.root();
  require_few_steps(root);
  auto normalizer = make_normalizer(at_or_null(root, "normalizer"));
  PreTokenizerChain pre_tokenizer = make_pre_tokenizer(at_or_null(root, "pre_tokenizer"));
  const bool raw_bytes = pre_tokenizer.byte_level && reads_raw_bytes(file);
  if (pre_tokenizer.byte_level && !raw_bytes) pre_tokenizer.spell_bytes();
  auto model = make_model(file, raw_bytes);
  AddedTokens added(root.find("added_tokens"), model->vocab(), normalizer.get());
  Tokenizer::Parts parts{.normalizer = std::move(normalizer),
                         .pre_tokenizer = std::move(pre_tokenizer),
                         .model = std::move(model),
                         .added = std::move(added),
                         .affixes = make_post_processor(at_or_null(root, "post_processor")),
                         .decoder = Decoder(at_or_null(root, "decoder")),
                         .notes = ignored_parts(root)};
  parts.lengths = lengths_of(parts);
  return parts;
}

}  // namespace plimsoll
