#include "data/encode/row_encoder.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/format.h"
#include "base/units.h"
#include "data/encode/row_kinds.h"
#include "data/files/cell.h"
#include "unicode/text_error.h"

namespace plimsoll {
namespace {

CutRule cut_of(const RowEncoding& rows) {
  if (rows.uncut) return {std::numeric_limits<int64_t>::max(), Truncation::refuse};
  return {rows.samples.max_length, rows.truncation};
}

SequenceRules sequences_of(const RowEncoding& rows, bool labelled) {
  return {cut_of(rows), rows.model.vocab_size, rows.model.padding, rows.model.scored_end, labelled};
}

TwoTextColumns two_text_columns(const RowEncoding& rows, const char* no_place) {
  const bool alpaca = rows.columns.format == RowFormat::alpaca;
  return {alpaca ? rows.columns.parts : std::vector<std::string>{}, rows.reading, no_place};
}

AnswerRules answers_of(const RowEncoding& rows, bool marks_count) {
  return {rows.columns, rows.texts, rows.converse, rows.model.vocab_size, rows.reading, marks_count};
}

MadeEncoder source_target_rows_of(const RowEncoding& rows) {
  SourceTargetRows kind{.columns = std::nullopt,
                        .texts = rows.texts,
                        .cut = cut_of(rows),
                        .target_length = rows.samples.target_length,
                        .decoder = rows.model.decoder,
                        .vocab_size = rows.model.vocab_size};
  if (rows.columns.format != RowFormat::input_ids) kind.columns = two_text_columns(rows, "task: seq2seq");
  return source_target_rows(kind);
}

MadeEncoder pair_rows_of(const RowEncoding& rows) {
  const TaskSpec& task = rows.samples.task;
  const TaskRule& rule = rule_of(task.task);
  if (rule.scores)
    return reward_rows({answers_of(rows, false), sequences_of(rows, false), rows.learns, targets_of(task)});
  return preference_rows({answers_of(rows, true), sequences_of(rows, true), rows.train_on_prompt,
                          rows.hides_last, rule.sequences * targets_of(task)});
}

MadeEncoder labelled_rows_of(const RowEncoding& rows) {
  return labelled_rows({rows.columns, rows.texts, rows.model, sequences_of(rows, false), rows.samples.task,
                        rows.labels, rows.learns, rows.reading});
}

MadeEncoder masked_rows_of(const RowEncoding& rows) {
  const RowFormat format = rows.columns.format;
  if (format != RowFormat::text && format != RowFormat::input_ids)
    throw UsageError(
        formatted("task: mlm reads texts or token ids, and these rows are {}: name the column of texts, such "
                  "as --set 'data.columns={{text: COLUMN}}'",
                  to_string(format)));
  const bool ready = format == RowFormat::input_ids;
  return masked_rows({rows.texts, ready ? Affixes{} : *rows.model.around, cut_of(rows), rows.model.vocab_size,
                      ready, rows.is_special});
}

// Rows whose next tokens are targets.
MadeEncoder token_rows_of(const RowEncoding& rows) {
  const CutRule cut = cut_of(rows);
  const int64_t vocab = rows.model.vocab_size;
  const RowFormat format = rows.columns.format;
  if (format == RowFormat::text) return text_rows({rows.texts, rows.train_on_prompt, cut, vocab});
  if (format == RowFormat::input_ids) return ready_rows({cut, vocab});
  if (rows.converse != nullptr)
    return conversation_rows({conversation_reader(rows.columns, rows.reading), rows.converse, cut, vocab});
  check_internal(format != RowFormat::messages, "messages need a template");
  return prompt_rows({two_text_columns(rows, "data.template: plain"), rows.texts,
                      rows.joined && format == RowFormat::prompt_response, rows.train_on_prompt, cut, vocab});
}

}  // namespace

std::unique_ptr<const RowEncoder> row_encoder(const RowEncoding& rows) {
  const TaskRule& rule = rule_of(rows.samples.task.task);
  if (rows.samples.max_length < 2)
    throw UsageError("data.max_length: at least 2 tokens are needed, one to read and one to predict.");
  check_internal(
      rows.columns.format == RowFormat::input_ids || rows.columns.ready || rows.texts.tokenize != nullptr,
      "text needs a tokenizer");
  if (rows.columns.format == RowFormat::preference) return pair_rows_of(rows);
  if (rule.scores) return labelled_rows_of(rows);
  if (rule.masks) return masked_rows_of(rows);
  if (rule.has_targets) return source_target_rows_of(rows);
  return token_rows_of(rows);
}

int64_t SampleRules::longest_sample() const {
  const TaskRule& rule = rule_of(task.task);
  return rule.has_targets ? max_length + target_length + 1 : max_length * rule.sequences;
}

ExampleEncoder::ExampleEncoder(const RowEncoding& rows)
    : rows_(row_encoder(rows)), samples_(rows.samples), masks_(rows.masks) {}

void ExampleEncoder::encode(const Row& row, const Where& where, Example& example) const {
  example.ids.clear();
  example.labels.clear();
  example.damage.clear();
  example.ends.clear();
  example.values.clear();
  example.second = -1;
  example.whole_length = example.targets = example.candidates = 0;
  example.size = row_size(row);
  require_planned(example, where);
  try {
    rows_->encode(row, where, example);
  } catch (const TextError& error) {
    throw DamagedError(formatted("{}: {}", where(), error.what()));
  }
  example.size = std::max(example.size, example.whole_length);
  require_planned(example, where);
}

void ExampleEncoder::require_planned(const Example& example, const Where& where) const {
  if (longest_row_ == 0 || example.size <= longest_row_) return;
  throw DamagedError(formatted(
      "{}: a row of {} (texts, and {} bytes for each value of JSON) takes more memory than the plan "
      "has for one, which is for {}. Split it or take it out.",
      where(), format_bytes(example.size), kValueSize, format_bytes(longest_row_)));
}

}  // namespace plimsoll
