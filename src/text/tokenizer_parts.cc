#include "text/tokenizer_parts.h"

namespace plimsoll {
namespace {

JsonPart at_or_null(const JsonPart& root, const char* key) {
  static const Json null;
  return root.has(key) ? root.at(key) : JsonPart(null, root.file());
}

std::vector<std::string> ignored_parts(const JsonPart& root) {
  std::vector<std::string> notes;
  for (const char* key : {"truncation", "padding"})
    if (root.find(key))
      notes.push_back(std::string("\"") + key +
                      "\" in tokenizer.json is ignored: the recipe decides on lengths");
  return notes;
}

}  // namespace

Tokenizer::Parts make_parts(const TokenizerFile& file) {
  const JsonPart root = file.root();
  auto normalizer = make_normalizer(at_or_null(root, "normalizer"));
  PreTokenizerChain pre_tokenizer = make_pre_tokenizer(at_or_null(root, "pre_tokenizer"));
  const bool raw_bytes = pre_tokenizer.byte_level && reads_raw_bytes(file);
  if (pre_tokenizer.byte_level && !raw_bytes) pre_tokenizer.spell_bytes();
  auto model = make_model(file, raw_bytes);
  AddedTokens added(root.find("added_tokens"), model->vocab(), normalizer.get());
  return {.normalizer = std::move(normalizer),
          .pre_tokenizer = std::move(pre_tokenizer),
          .model = std::move(model),
          .added = std::move(added),
          .affixes = make_post_processor(at_or_null(root, "post_processor")),
          .decoder = Decoder(at_or_null(root, "decoder")),
          .notes = ignored_parts(root)};
}

}  // namespace plimsoll
