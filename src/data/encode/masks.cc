#include "data/encode/masks.h"

#include "ops/name_hash.h"
#include "ops/philox.h"

namespace plimsoll {

void draw_masks(const MaskRules& rules, const RowVisit& visit, Example& example) {
  if (example.candidates == 0) return;
  const auto row = static_cast<uint64_t>(visit.row);
  const PhiloxStream stream =
      philox_stream(rules.seed, name_hash("masked words"), static_cast<uint32_t>(row),
                    static_cast<uint32_t>(row >> 32), static_cast<uint32_t>(visit.epoch));
  example.targets = 0;
  for (size_t i = 0; i < example.ids.size(); ++i) {
    if (example.labels[i] == kIgnoreLabel) continue;
    uint32_t bits[4];
    philox(stream, static_cast<uint32_t>(i), bits);
    const auto uniform = [&](int word) { return static_cast<double>(bits[word]) * 0x1p-32; };
    if (uniform(0) >= rules.probability) {
      example.labels[i] = kIgnoreLabel;
      continue;
    }
    ++example.targets;
    const double shown = uniform(1);
    if (shown < rules.mask)
      example.ids[i] = rules.mask_token;
    else if (shown < rules.mask + rules.random)
      example.ids[i] = static_cast<int32_t>(uniform(2) * static_cast<double>(rules.vocab_size));
  }
}

}  // namespace plimsoll
