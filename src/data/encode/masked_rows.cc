// A text whose words are hidden: between what the tokenizer puts around it, as token ids, or as ids that were masked
// before.
#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "data/encode/ids.h"
#include "data/encode/row_kinds.h"
#include "data/files/cell.h"

namespace plimsoll {
namespace {

class MaskedEncoder : public RowEncoder {
 public:
  explicit MaskedEncoder(const MaskedRows& rows) : rows_(rows) {}

  void encode(const Row& row, const Where& where, Example& example) const override {
    if (rows_.ready)
      encode_ready(row, where, example);
    else
      encode_text(row[0].text, where, example);
    const auto wanted = std::count_if(example.labels.begin(), example.labels.end(),
                                      [](int32_t label) { return label != kIgnoreLabel; });
    example.targets = wanted;
    if (!(rows_.ready && row.size() > 1)) example.candidates = wanted;
  }

 private:
  // Without ids where the row is left out.
  void encode_text(std::string_view text, const Where& where, Example& example) const {
    const Affixes& around = rows_.around;
    std::vector<int32_t> words;
    rows_.texts.tokenize(text, words);
    require_known_ids(words, rows_.vocab_size, where);
    const int64_t added = std::ssize(around.prefix) + std::ssize(around.suffix);
    if (rows_.cut.max_length <= added)
      throw UsageError(formatted(
          "data.max_length: {} tokens have no room for a word and the {} that stand around the text of {}.",
          rows_.cut.max_length, added, where()));
    example.whole_length = added + std::ssize(words);
    if (example.whole_length > rows_.cut.max_length) {
      if (rows_.cut.truncation == Truncation::drop) return;
      if (rows_.cut.truncation == Truncation::refuse) refuse_long(rows_.cut, example.whole_length, where);
      cut_text(rows_.cut.max_length - added, rows_.cut.truncation, false, words);
    }
    example.ids = around.prefix;
    example.ids.insert(example.ids.end(), words.begin(), words.end());
    example.labels = example.ids;
    std::fill_n(example.labels.begin(), around.prefix.size(), kIgnoreLabel);
    example.ids.insert(example.ids.end(), around.suffix.begin(), around.suffix.end());
    example.labels.resize(example.ids.size(), kIgnoreLabel);
    leave_out_special(example);
  }

  // Labels of a row say what is to be guessed.
  void encode_ready(const Row& row, const Where& where, Example& example) const {
    read_ready(row, rows_.vocab_size, where, example);
    example.whole_length = std::ssize(example.ids);
    cut_sequence(rows_.cut, where, example);
    if (row.size() == 1) leave_out_special(example);
  }

  void leave_out_special(Example& example) const {
    for (int32_t& label : example.labels)
      if (label != kIgnoreLabel && rows_.is_special(label)) label = kIgnoreLabel;
  }

  MaskedRows rows_;
};

}  // namespace

MadeEncoder masked_rows(const MaskedRows& rows) { return std::make_unique<MaskedEncoder>(rows); }

}  // namespace plimsoll
