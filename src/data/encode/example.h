// Encodes a row as token ids with labels or numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/chat_template.h"
#include "data/encode/messages.h"
#include "data/rows/columns.h"
#include "tasks/rows.h"
#include "tasks/task.h"
#include "tokenizer/files/affixes.h"

namespace plimsoll {

// A label that takes no part in the loss, as in PyTorch and transformers.
inline constexpr int32_t kIgnoreLabel = -100;

// Appends the ids of a text, without any special token of its own.
using Tokenize = std::function<void(std::string_view, std::vector<int32_t>&)>;

// One sequence, or those that a sample keeps together, one behind the other. labels[i] is ids[i] or
// kIgnoreLabel, aligned as in transformers; the shift by one to "next token" is made where batches are put
// together.
struct Example {
  std::vector<int32_t> ids;
  std::vector<int32_t> labels;
  int64_t whole_length = 0;  // tokens before truncation, of the longest sequence
  int64_t size = 0;          // of the row, which its memory is planned by (data/files/cell.h)
  // The number of targets that the loss sees: labels, without the first of each sequence, which no token
  // predicts; or what the task counts.
  int64_t targets = 0;
  std::string damage = {};         // why the row could not be read; then the rest means nothing
  std::vector<int64_t> ends = {};  // of the sequences in `ids`; empty: it is one
  int64_t second = -1;             // where the ids of a second text begin, of token type 1; -1: nowhere
  std::vector<float> values = {};  // numbers of each sequence, where the task has some

  [[nodiscard]] int64_t sequences() const { return ends.empty() ? 1 : static_cast<int64_t>(ends.size()); }
  [[nodiscard]] int64_t end_of(int64_t sequence) const {
    return ends.empty() ? static_cast<int64_t>(ids.size()) : ends[static_cast<size_t>(sequence)];
  }
  [[nodiscard]] int64_t longest() const;
  [[nodiscard]] bool truncated() const { return whole_length > longest(); }
};

// The tokens that a decoder after an encoder reads before a target, and instead of an id that is no target.
struct DecoderTokens {
  int32_t start = 0, pad = 0;
};
// Appends the sequences of a source with its target: the target has the start token before it, so that what
// follows a token is what the decoder predicts there; ids of a target that are kIgnoreLabel are no targets,
// and read as the padding token, as transformers shifts labels.
void append_source(const std::vector<int32_t>& ids, Example& example);
void append_target(const std::vector<int32_t>& ids, const DecoderTokens& tokens, Example& example);

// Cuts two texts to `room` tokens together, as tokenizers' longest_first does: the longer one loses first.
void cut_pair(int64_t room, Truncation truncation, std::vector<int32_t>& first, std::vector<int32_t>& second);

// Cuts a text that is longer: an end is lost, the last token kept where it `ends` the text.
void cut_text(int64_t length, Truncation truncation, bool ends, std::vector<int32_t>& ids);

// Drops what ends with `padding`, where there is such a token; of padding alone one stays. A sequence is
// scored at its last token that is no padding, as transformers finds it: what stands behind it is not
// computed.
void drop_padding(std::optional<int64_t> padding, std::vector<int32_t>& ids);

// The cell of a part; null where the rows have none.
const nlohmann::ordered_json& part_of(const Row& row, const std::vector<std::string>& parts,
                                      std::string_view part);

// A list of ids that a cell holds, all below `vocab_size`. Throws DamagedError that starts with where().
std::vector<int32_t> ready_ids(const nlohmann::ordered_json& list, int64_t vocab_size,
                               const std::function<std::string()>& where);

struct ExampleOptions {
  RowFormat format = RowFormat::text;
  int64_t max_length = 1024;
  int64_t target_length = 0;   // of targets, where rows are a source and a target
  DecoderTokens decoder = {};  // that those are read with
  Truncation truncation = Truncation::right;
  bool train_on_prompt = false;         // of prompts without `converse`
  int32_t eos = 0;                      // appended to a response or text that does not end with it
  std::vector<int32_t> begin = {};      // before texts and prompts without `converse`
  bool joined = false;                  // prompt and response are tokenised as one text
  std::vector<std::string> parts = {};  // of alpaca rows: what each cell is
  std::string message_role = {}, message_content = {};  // keys of messages that are not the usual ones
  int64_t vocab_size = 0;  // rows of the embedding: ids of a file must be below it
  TaskSpec task = {};
  bool ready = false;      // rows of tasks that score sequences are token ids
  bool dialogues = false;  // answers are dialogues in one text (data/encode/dialogue.h)
  std::optional<Affixes> around =
      {};  // what stands around the texts that an encoder scores, and between them
  std::optional<int32_t> padding =
      {};  // that sequences may end with and no score is made of; none: they stay
  std::optional<int32_t> scored_end = {};  // what a text that is scored ends with, also where it is cut
  int64_t token_types = 0;                 // that the model knows; 0: it has none
  bool learns = true;                      // false: rows are to be scored, whatever label or margin they have
  std::vector<std::string> labels = {};    // names of the classes, where they have some
  LabelLists lists = LabelLists::unknown;  // what their lists are
  int64_t reading = kReading;              // the rules of reading (tasks/rows.h)
};

// Sets ids and labels of a conversation: labels for the tokens to train on, kIgnoreLabel elsewhere;
// whole_length where it cut the conversation itself. Throws DamagedError that starts with where() for a
// conversation that its template refuses or that has nothing to train on.
using EncodeConversation =
    std::function<void(const Conversation&, const std::function<std::string()>& where, Example&)>;

class ExampleEncoder {
 public:
  // `tokenize` may be empty for ready ids. With `converse` messages, alpaca rows, and prompts with their
  // responses, are conversations; messages need it.
  ExampleEncoder(const ExampleOptions& options, Tokenize tokenize, EncodeConversation converse = {});

  [[nodiscard]] const ExampleOptions& options() const { return options_; }
  // Fills `example` from a row read with the binding's columns. An example with no target is nothing to learn
  // from: its caller skips it. Throws DamagedError that starts with where() for ids that cannot be.
  void encode(const Row& row, const std::function<std::string()>& where, Example& example) const;
  // Rows of a larger size (Example::size) are damaged from here on; 0: no row is.
  void limit_rows(int64_t longest) { longest_row_ = longest; }

 private:
  void require_planned(const Example& example, const std::function<std::string()>& where) const;
  void encode_by_task(const Row& row, const std::function<std::string()>& where, Example& example) const;
  void encode_row(const Row& row, const std::function<std::string()>& where, Example& example) const;
  // A source and a target.
  void encode_two(const Row& row, const std::function<std::string()>& where, Example& example) const;
  // Cuts what a text became to a length, its end of text kept. False where it is left out.
  bool fit_text(int64_t length, const char* what, const std::function<std::string()>& where, bool ends,
                std::vector<int32_t>& ids, Example& example) const;
  [[nodiscard]] MessageNames message_names() const {
    return {options_.message_role, options_.message_content, options_.reading > kFirstReading};
  }
  // The conversation of a pair's answer. For pairs it is ignored which messages are marked for training.
  [[nodiscard]] Conversation read_answer(const nlohmann::ordered_json& messages, size_t prompt_messages,
                                         const std::function<std::string()>& where) const;
  // For tasks that score whole sequences.
  void encode_pair(const Row& row, const std::function<std::string()>& where, Example& example) const;
  // Labels are of the answers alone, or of the chosen one's prompt, too (ops/loss/linear_log_prob.h).
  void encode_preference(const Row& row, const std::function<std::string()>& where, Example& example) const;
  // The cell of an answer; a dialogue as messages, where a template renders it.
  nlohmann::ordered_json answer_of(const Row& row, const char* part,
                                   const std::function<std::string()>& where) const;
  // One of its answers; `prompt_ends` becomes where its answer begins.
  void encode_preferred(const nlohmann::ordered_json& prompt, const nlohmann::ordered_json& answer,
                        const std::function<std::string()>& where, Example& one, size_t& prompt_ends) const;
  void encode_labelled(const Row& row, const std::function<std::string()>& where, Example& example) const;
  // One or two texts with what stands around them, cut to the length; without ids where the row is left out.
  void encode_framed(const std::vector<std::string_view>& texts, const std::function<std::string()>& where,
                     Example& one) const;
  void encode_ready(const Row& row, const std::function<std::string()>& where, Example& one) const;
  // Token types of ready ids: 0 up to a second text, then 1.
  void read_types(const nlohmann::ordered_json& types, const std::function<std::string()>& where,
                  Example& one) const;
  // Fills in placeholders for the numbers that the loss would read, where the scores are not trained.
  void expect_nothing(Example& example) const;
  // A prompt, which may be null, with its answer: two texts, or two lists of messages.
  void encode_answer(const nlohmann::ordered_json& prompt, const nlohmann::ordered_json& answer,
                     const std::function<std::string()>& where, Example& one) const;
  // A text that is scored at its end has one, also where it was cut.
  void end_scored(Example& one) const;
  // Cuts the sequence and adds it to the sample. False where it is left out.
  bool append(Example one, const std::function<std::string()>& where, Example& example) const;
  void encode_ready_ids(const Row& row, const std::function<std::string()>& where, Example& example) const;
  void require_ready(const std::vector<int32_t>& ids, bool labels,
                     const std::function<std::string()>& where) const;
  void truncate(std::vector<int32_t>& tokens) const;
  void encode_text(std::string_view prompt, std::string_view response, Example& example) const;
  // Encodes both as one text; the trained part begins where its tokens and those of the prompt alone part.
  void encode_joined(const std::string& prompt, const std::string& response, Example& example) const;
  void fit(const std::function<std::string()>& where, Example& example) const;
  [[noreturn]] void refuse_long(int64_t tokens, const std::function<std::string()>& where) const;

  ExampleOptions options_;
  Tokenize tokenize_;
  EncodeConversation converse_;
  int64_t longest_row_ = 0;
};

}  // namespace plimsoll
