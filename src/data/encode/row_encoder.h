// Encodes rows as token ids with labels or numbers. Each kind of row has an encoder of its own
// (data/encode/row_kinds.h); row_encoder() chooses it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/encode/example.h"
#include "data/encode/masks.h"
#include "data/encode/texts.h"
#include "data/rows/columns.h"
#include "tasks/rows.h"
#include "tasks/task.h"
#include "tokenizer/files/affixes.h"

namespace plimsoll {

// The encoder of a kind of row.
class RowEncoder {
 public:
  virtual ~RowEncoder() = default;
  // Fills an empty example from a row read with the columns that the encoder was made for. An example with no
  // target is nothing to learn from: its caller skips it. Throws DamagedError that starts with where() for
  // what cannot be, and UsageError for a row that the recipe does not go with.
  virtual void encode(const Row& row, const Where& where, Example& example) const = 0;
};

// The task that samples are for, and how long they may be.
struct SampleRules {
  TaskSpec task = {};
  int64_t max_length = 1024;  // of a sequence
  int64_t target_length = 0;  // of targets, where rows are a source and a target

  // Tokens of the longest sample.
  [[nodiscard]] int64_t longest_sample() const;
};

// Ids that the model knows, and those with a meaning to it.
struct ModelTokens {
  int64_t vocab_size = 0;  // rows of the embedding: ids of a file must be below it
  std::optional<int32_t> padding =
      {};  // that sequences may end with and no score is made of; none: they stay
  std::optional<int32_t> scored_end = {};  // that a text that is scored ends with, also where it is cut
  int64_t token_types = 0;                 // 0: the model has none
  DecoderTokens decoder = {};              // of a decoder after an encoder
  std::optional<Affixes> around = {};      // around the texts that are scored, and between them
};

// The rules by which the rows of a data set become examples.
struct RowEncoding {
  ColumnBinding columns = {};
  SampleRules samples = {};
  Truncation truncation = Truncation::right;
  TextRules texts = {};              // its tokenizer may be empty for ready ids
  EncodeConversation converse = {};  // messages need it; other rows are conversations where it is there
  ModelTokens model = {};
  bool train_on_prompt = false;          // of rows that are no conversations
  bool joined = false;                   // prompt and response are tokenised as one text
  bool uncut = false;                    // texts stay whole, whatever their length
  bool hides_last = false;               // of pairs, the last token is no target
  bool learns = true;                    // false: rows are scored, whatever label or margin they have
  std::vector<std::string> labels = {};  // names of the classes, where they have some
  int64_t reading = kReading;            // the rules of reading (tasks/rows.h)
  std::optional<MaskRules> masks = {};   // where words are hidden
  std::function<bool(int32_t)> is_special =
      {};  // a token of the tokenizer that is no word, where words are hidden
};

// The encoder of the rows' kind.
std::unique_ptr<const RowEncoder> row_encoder(const RowEncoding& rows);

// Encodes any row, and refuses what is larger than planned.
class ExampleEncoder {
 public:
  explicit ExampleEncoder(const RowEncoding& rows);

  [[nodiscard]] const SampleRules& samples() const { return samples_; }
  // Fills `example`, whatever it held before (RowEncoder).
  void encode(const Row& row, const Where& where, Example& example) const;
  // Draws which words of an encoded row are hidden, where the task has that.
  void draw(const RowVisit& visit, Example& example) const {
    if (masks_) draw_masks(*masks_, visit, example);
  }
  // Rows of a larger size (Example::size) are damaged from here on; 0: no row is.
  void limit_rows(int64_t longest) { longest_row_ = longest; }

 private:
  void require_planned(const Example& example, const Where& where) const;

  std::shared_ptr<const RowEncoder> rows_;
  SampleRules samples_;
  std::optional<MaskRules> masks_;
  int64_t longest_row_ = 0;
};

}  // namespace plimsoll
