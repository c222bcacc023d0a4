// The kinds of rows, each with its own encoder in the file of its name and what that asks.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/encode/answers.h"
#include "data/encode/row_encoder.h"
#include "data/encode/sequences.h"

namespace plimsoll {

using MadeEncoder = std::unique_ptr<const RowEncoder>;

// One text, whose every token is a target.
struct TextRows {
  TextRules texts;
  bool train_on_begin = false;  // its first tokens are targets, too
  CutRule cut;
  int64_t vocab_size = 0;
};
MadeEncoder text_rows(const TextRows& rows);

// The two texts of a row: its first two cells, or a question of Alpaca's with its answer.
struct TwoTextColumns {
  std::vector<std::string> alpaca = {};  // the part that each cell is; empty: they are prompt and response
  int64_t reading = kReading;
  std::string no_place;  // that has no place for more than a question and its answer
};
struct TwoTexts {
  Conversation held;  // where the texts of Alpaca's rows are
  std::string_view prompt, response;
};
// Fills `texts`, which refers to the row.
void read_two_texts(const TwoTextColumns& columns, const Row& row, const Where& where, TwoTexts& texts);

// One text of which an encoder guesses words that are hidden.
struct MaskedRows {
  TextRules texts;
  Affixes around;  // of each text
  CutRule cut;
  int64_t vocab_size = 0;
  bool ready = false;                       // rows are token ids, with labels where words are hidden already
  std::function<bool(int32_t)> is_special;  // a token that is never hidden
};
MadeEncoder masked_rows(const MaskedRows& rows);

// A prompt and its response as texts.
struct PromptRows {
  TwoTextColumns columns;
  TextRules texts;
  bool joined = false;  // tokenised as one text
  bool train_on_prompt = false;
  CutRule cut;
  int64_t vocab_size = 0;
};
MadeEncoder prompt_rows(const PromptRows& rows);

// Conversations, which a chat template renders.
using ReadConversation = std::function<Conversation(const Row&, const Where&)>;
ReadConversation conversation_reader(const ColumnBinding& columns, int64_t reading);
struct ConversationRows {
  ReadConversation read;
  EncodeConversation converse;
  CutRule cut;
  int64_t vocab_size = 0;
};
MadeEncoder conversation_rows(const ConversationRows& rows);

// Ready token ids, with labels or without.
struct ReadyRows {
  CutRule cut;
  int64_t vocab_size = 0;
};
MadeEncoder ready_rows(const ReadyRows& rows);

// A source and a target, each of its own length: two texts, or ready ids and labels.
struct SourceTargetRows {
  std::optional<TwoTextColumns> columns;  // none: they are ready ids
  TextRules texts;
  CutRule cut;  // of sources
  int64_t target_length = 0;
  DecoderTokens decoder;
  int64_t vocab_size = 0;
};
MadeEncoder source_target_rows(const SourceTargetRows& rows);

// A chosen and a rejected answer, whose log-probabilities are compared. Labels are of the answers alone, or of
// the chosen one's prompt, too (ops/loss/linear_log_prob.h).
struct PreferenceRows {
  AnswerRules answers;
  SequenceRules sequences;
  bool train_on_prompt = false;
  bool hides_last = false;  // the last token of an answer is no target
  int64_t values = 0;       // numbers of a sample, which are not in the row
};
MadeEncoder preference_rows(const PreferenceRows& rows);

// A chosen and a rejected answer, or one alone, each of which is scored.
struct RewardRows {
  AnswerRules answers;
  SequenceRules sequences;
  bool learns = true;
  int64_t targets = 0;  // numbers of a sequence
};
MadeEncoder reward_rows(const RewardRows& rows);

// A text, or two, with the class or numbers that they have.
struct LabelledRows {
  ColumnBinding columns;
  TextRules texts;
  ModelTokens model;
  SequenceRules sequences;
  TaskSpec task;
  std::vector<std::string> labels = {};
  bool learns = true;
  int64_t reading = kReading;
};
MadeEncoder labelled_rows(const LabelledRows& rows);

}  // namespace plimsoll
