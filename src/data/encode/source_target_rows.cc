// A source and a target, each of its own length: two texts, or ready ids and labels.
#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "data/encode/ids.h"
#include "data/encode/row_kinds.h"
#include "data/files/cell.h"

namespace plimsoll {
namespace {

// An empty target, and one without a token to train on, leaves the row without targets.
class SourceTargetEncoder : public RowEncoder {
 public:
  explicit SourceTargetEncoder(const SourceTargetRows& rows) : rows_(rows) {}

  void encode(const Row& row, const Where& where, Example& example) const override {
    std::vector<int32_t> source, target;
    if (rows_.columns)
      read_texts(row, where, source, target);
    else
      read_ids(row, where, source, target);
    const bool ends = rows_.columns.has_value();
    if (!fit(rows_.cut.max_length, "source", where, ends, source, example) ||
        !fit(rows_.target_length, "target", where, ends, target, example) || source.empty() || target.empty())
      return;
    append_source(source, example);
    append_target(target, rows_.decoder, example);
    if (!example.truncated()) example.whole_length = example.longest();
  }

 private:
  void read_ids(const Row& row, const Where& where, std::vector<int32_t>& source,
                std::vector<int32_t>& target) const {
    source = row[0].ids;
    target = row[1].ids;
    require_ready(source, IdsAre::tokens, rows_.vocab_size, where);
    require_ready(target, IdsAre::labels, rows_.vocab_size, where);
  }

  void read_texts(const Row& row, const Where& where, std::vector<int32_t>& source,
                  std::vector<int32_t>& target) const {
    TwoTexts texts;
    read_two_texts(*rows_.columns, row, where, texts);
    rows_.texts.tokenize(texts.prompt, source);
    source.push_back(rows_.texts.eos);
    if (!texts.response.empty()) {
      rows_.texts.tokenize(texts.response, target);
      target.push_back(rows_.texts.eos);
    }
    for (const auto* ids : {&source, &target}) require_known_ids(*ids, rows_.vocab_size, where);
  }

  // Cuts a text's tokens to a length, its end of text kept. False where it is left out.
  bool fit(int64_t length, const char* what, const Where& where, bool ends, std::vector<int32_t>& ids,
           Example& example) const {
    const auto have = static_cast<int64_t>(ids.size());
    if (have <= length) return true;
    if (rows_.cut.truncation == Truncation::drop) return false;
    if (rows_.cut.truncation == Truncation::refuse)
      throw DamagedError(
          formatted("{}: its {} has {} tokens, more than data.max_length: {}, and data.truncation is refuse.",
                    where(), what, have, length));
    example.whole_length = std::max(example.whole_length, have);
    cut_text(length, rows_.cut.truncation, ends, ids);
    return true;
  }

  SourceTargetRows rows_;
};

}  // namespace

MadeEncoder source_target_rows(const SourceTargetRows& rows) {
  return std::make_unique<SourceTargetEncoder>(rows);
}

}  // namespace plimsoll
