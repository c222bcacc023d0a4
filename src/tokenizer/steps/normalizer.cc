#include "tokenizer/steps/normalizer.h"

namespace plimsoll {

void NormalizerSequence::apply(NormalText& text) const {
  for (const auto& step : steps_) step->apply(text);
}

int64_t NormalizerSequence::resident_bytes() const {
  int64_t bytes = 0;
  for (const auto& step : steps_) bytes += step->resident_bytes();
  return bytes;
}

std::unique_ptr<Normalizer> make_normalizer(const JsonPart& json) {
  if (json.is_null()) return nullptr;
  const std::string& type = json.at("type").text();
  if (type == "Sequence") {
    std::vector<std::unique_ptr<Normalizer>> steps;
    for (const JsonPart& step : json.at("normalizers").items())
      if (auto normalizer = make_normalizer(step)) steps.push_back(std::move(normalizer));
    return std::make_unique<NormalizerSequence>(std::move(steps));
  }
  for (const auto make :
       {make_unicode_form, make_edit_normalizer, make_bert_normalizer, make_precompiled_normalizer})
    if (auto normalizer = make(json, type)) return normalizer;
  json.refuse("normalizer", type,
              "NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip, StripAccents, BertNormalizer, "
              "Precompiled, Sequence, null");
}

}  // namespace plimsoll
