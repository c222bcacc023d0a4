// A row as token ids with labels or numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "chat/conversation.h"
#include "data/files/data_file.h"

namespace plimsoll {

// A label that takes no part in the loss, as in PyTorch and transformers.
inline constexpr int32_t kIgnoreLabel = -100;

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
  int64_t candidates =
      0;  // tokens among which masks are drawn (data/encode/masks.h); their labels are themselves
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
  // True if a batch takes it: it has targets, or masks may be drawn in it.
  [[nodiscard]] bool learns() const { return targets > 0 || candidates > 0; }
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

// Leaves the sample without tokens: no batch takes it.
void leave_out(Example& example);

// Gives back the memory of a long row that was encoded into it before.
void forget_long(Example& example);

// Sets ids and labels of a conversation: labels for the tokens to train on, kIgnoreLabel elsewhere;
// whole_length where it cut the conversation itself. Throws DamagedError that starts with where() for a
// conversation that its template refuses or that has nothing to train on.
using EncodeConversation = std::function<void(const Conversation&, const Where& where, Example&)>;

}  // namespace plimsoll
