#include "prepare/preview.h"

#include <algorithm>
#include <span>

#include "base/error.h"
#include "base/format.h"
#include "base/units.h"
#include "data/batch/row_reader.h"
#include "prepare/setup.h"

namespace plimsoll {
namespace {

std::string text_of(const Tokenizer* tokenizer, std::span<const int32_t> ids) {
  std::string text;
  for (const int32_t id : ids) {
    if (tokenizer != nullptr)
      tokenizer->append_token_bytes(id, false, text);
    else
      text += (text.empty() ? "" : " ") + std::to_string(id);
  }
  return text;
}

// Finds the ids that were cut, by those before and after: what is missing stands together. Words may repeat, so the
// end that nothing was taken from is matched first.
void find_cut(const Tokenizer* tokenizer, std::span<const int32_t> whole, std::span<const int32_t> kept,
              Truncation truncation, PreviewSequence& sequence) {
  if (kept.size() >= whole.size()) return;
  const size_t count = whole.size() - kept.size();
  sequence.cut_tokens = static_cast<int64_t>(count);
  size_t begin = 0;
  if (truncation == Truncation::left) {
    const auto behind = std::mismatch(kept.rbegin(), kept.rend(), whole.rbegin(), whole.rend());
    begin = static_cast<size_t>(kept.rend() - behind.first);
  } else {
    begin = static_cast<size_t>(std::mismatch(kept.begin(), kept.end(), whole.begin(), whole.end()).first -
                                kept.begin());
  }
  sequence.cut_text = text_of(tokenizer, whole.subspan(begin, count));
}

// The ids before words were hidden: a label is the word that stood there.
void uncover(Example& example) {
  for (size_t i = 0; i < example.labels.size() && i < example.ids.size(); ++i)
    if (example.labels[i] != kIgnoreLabel) example.ids[i] = example.labels[i];
}

std::span<const int32_t> sequence_of(const Example& example, int64_t number) {
  const int64_t begin = number == 0 ? 0 : example.end_of(number - 1);
  return std::span(example.ids)
      .subspan(static_cast<size_t>(begin), static_cast<size_t>(example.end_of(number) - begin));
}

PreviewSequence sequence_preview(const Tokenizer* tokenizer, const Example& example, int64_t number) {
  PreviewSequence sequence;
  const std::span<const int32_t> ids = sequence_of(example, number);
  sequence.tokens = std::ssize(ids);
  const bool labelled = example.labels.size() == example.ids.size();
  const auto is_learnt = [&](size_t i) {
    const auto offset = static_cast<size_t>(ids.data() - example.ids.data());
    return labelled && example.labels[offset + i] != kIgnoreLabel;
  };
  for (size_t i = 0; i < ids.size();) {
    size_t end = i + 1;
    while (end < ids.size() && is_learnt(end) == is_learnt(i)) ++end;
    sequence.parts.push_back({text_of(tokenizer, ids.subspan(i, end - i)), is_learnt(i)});
    if (is_learnt(i)) sequence.learnt += static_cast<int64_t>(end - i);
    i = end;
  }
  return sequence;
}

class RowPreviews {
 public:
  RowPreviews(const Recipe& recipe, FirstRows& rows)
      : recipe_(recipe), rows_(rows), labels_(rows.data.labels) {}

  PreviewRow row(int64_t number) {
    DataSource& source = *rows_.data.train;
    PreviewRow row;
    try {
      reader_.encode_row(number, rows_.whole, whole_);
      reader_.encode_row(number, source.encoder, example_);
    } catch (const DamagedError& error) {
      row.problem = error.what();
    }
    row.where = source.dataset.where(number);  // its unit is held now
    if (!row.problem.empty()) return row;
    if (!whole_.damage.empty() || !example_.damage.empty()) {
      row.problem = whole_.damage.empty() ? example_.damage : whole_.damage;
      return row;
    }
    fill(row);
    return row;
  }

 private:
  void fill(PreviewRow& row) {
    const TaskSpec& task = rows_.data.train->encoder.samples().task;
    const bool dropped = example_.ids.empty() && !whole_.ids.empty();
    const Example& shown = dropped ? whole_ : example_;
    if (dropped)
      row.problem = formatted("left out: {} tokens are more than data.max_length: {} (data.truncation: drop)",
                              format_count(std::max(whole_.longest(), whole_.whole_length)),
                              format_count(recipe_.data.max_length));
    else if (!example_.learns())
      row.problem = "left out: it has nothing to learn";
    const Tokenizer* tokenizer = rows_.data.tokenizer.get();
    const TaskRule& rule = rule_of(task.task);
    Example kept = shown;
    if (rule.masks) {
      uncover(whole_);
      uncover(kept);
    }
    for (int64_t i = 0; i < shown.sequences(); ++i) {
      PreviewSequence sequence = sequence_preview(tokenizer, shown, i);
      if (shown.sequences() == 2) sequence.name = rule.sequence_names.at(static_cast<size_t>(i));
      if (!dropped && whole_.sequences() == shown.sequences())
        find_cut(tokenizer, sequence_of(whole_, i), sequence_of(kept, i), recipe_.data.truncation, sequence);
      row.sequences.push_back(std::move(sequence));
    }
    if (rule.answer_words != nullptr) row.target = rule.answer_words(task, shown.values, labels_);
  }

  const Recipe& recipe_;
  FirstRows& rows_;
  std::vector<std::string> labels_;  // names of the classes
  RowReader reader_{rows_.data.train->dataset, rows_.data.train->rows, {.shuffle = Shuffle::off}};
  Example whole_, example_;
};

}  // namespace

Preview preview_rows(const Recipe& recipe, const std::shared_ptr<ModelFiles>& models, int64_t count) {
  if (recipe.data.train.empty()) throw UsageError("the recipe names no rows (data.train)");
  FirstRows rows = open_first_rows(resolve(recipe, models), count);
  Preview preview;
  preview.rendering = rows.data.summary->rendering;
  preview.learns_tokens = !rule_of(recipe.task).scores;
  RowPreviews previews(recipe, rows);
  const RowSubset& subset = rows.data.train->rows;
  for (int64_t i = 0; i < std::min(count, subset.size()); ++i)
    preview.rows.push_back(previews.row(subset.row(i)));
  return preview;
}

}  // namespace plimsoll
