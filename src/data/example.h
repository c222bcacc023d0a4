// A row becomes token ids and labels.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/columns.h"
#include "template/chat_template.h"

namespace plimsoll {

// A label that takes no part in the loss, as in PyTorch and transformers.
inline constexpr int32_t kIgnoreLabel = -100;

// Appends the ids of a text, without any special token of its own.
using Tokenize = std::function<void(std::string_view, std::vector<int32_t>&)>;

// One sequence. labels[i] is ids[i] or kIgnoreLabel, aligned as in transformers; the shift by one to "next
// token" is made where batches are put together.
struct Example {
  std::vector<int32_t> ids;
  std::vector<int32_t> labels;
  int64_t whole_length = 0;  // tokens before truncation
  int64_t targets = 0;       // labels the loss sees: the first token of a sequence is nobody's next one
  std::string damage = {};   // why the row could not be read; then the rest means nothing

  [[nodiscard]] bool truncated() const { return whole_length > static_cast<int64_t>(ids.size()); }
};

enum class Side : uint8_t { left, right };

struct ExampleOptions {
  RowFormat format = RowFormat::text;
  int64_t max_length = 1024;      // longer sequences lose an end
  Side truncation = Side::right;  // which one
  bool train_on_prompt = false;   // of prompt-response without `converse`
  int32_t eos = 0;                // appended to a response or text
  int64_t vocab_size = 0;         // rows of the embedding: ids of a file must be below it
};

// Sets ids and labels of a conversation: labels of what is to be learnt, kIgnoreLabel elsewhere. Throws
// DamagedError that starts with where() for a conversation that its template refuses or learns nothing from.
using EncodeConversation =
    std::function<void(const Conversation&, const std::function<std::string()>& where, Example&)>;

class ExampleEncoder {
 public:
  // `tokenize` may be empty for ready ids. With `converse` messages, and prompts with their responses, are
  // conversations; messages need it.
  ExampleEncoder(const ExampleOptions& options, Tokenize tokenize, EncodeConversation converse = {});

  [[nodiscard]] const ExampleOptions& options() const { return options_; }
  // Fills `example` from a row read with the binding's columns. An example with no target is nothing to learn
  // from: its caller skips it. Throws DamagedError that starts with where() for ids that cannot be.
  void encode(const Row& row, const std::function<std::string()>& where, Example& example) const;

 private:
  void encode_row(const Row& row, const std::function<std::string()>& where, Example& example) const;
  void encode_ready_ids(const Row& row, const std::function<std::string()>& where, Example& example) const;
  void truncate(std::vector<int32_t>& tokens) const;
  void encode_text(std::string_view prompt, std::string_view response, Example& example) const;

  ExampleOptions options_;
  Tokenize tokenize_;
  EncodeConversation converse_;
};

}  // namespace plimsoll
