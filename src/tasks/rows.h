// Properties of rows that recipe and data share.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

namespace plimsoll {

enum class RowFormat : uint8_t {
  prompt_response,  // two texts: prompt, response
  messages,         // conversations, read as JSON: a list of messages, and the tools they may call
  text,             // one text, every token a target
  input_ids,        // ready tokens, with labels or without
  alpaca,      // an instruction, its answer, and where there are any input, system and history; read as JSON
  preference,  // a chosen and a rejected answer, with the prompt or without, and a margin; read as JSON
  sentence_label  // a text or two, and the class or numbers that they have; read as JSON
};

// In the order in which they are tried where the recipe names none.
inline constexpr std::array<std::pair<RowFormat, std::string_view>, 7> kRowFormats = {{
    {RowFormat::prompt_response, "prompt-response"},
    {RowFormat::messages, "messages"},
    {RowFormat::text, "text"},
    {RowFormat::input_ids, "input-ids"},
    {RowFormat::alpaca, "alpaca"},
    {RowFormat::preference, "preference"},
    {RowFormat::sentence_label, "sentence-label"},
}};
std::string_view to_string(RowFormat format);

// The treatment of a sequence that is too long: it loses its right or left end, is left out, or is an error.
enum class Truncation : uint8_t { right, left, drop, refuse };

// The treatment of a row that cannot be read: it ends the run, or is counted and left out.
enum class RowErrors : uint8_t { stop, skip };

// The order of an epoch's rows: as they stand; rows of groups of units that are read together; any of all
// rows.
enum class Shuffle : uint8_t { off, window, full };

// The rules by which rows become targets: today's, and those of runs that began before there was a key for
// it. A run continues with the rules that it began with (docs/howto/data.md).
inline constexpr int64_t kReading = 6;
inline constexpr int64_t kFirstReading = 1;
// Since these rules the embedding's row of the padding token is not trained where it is read
// (ModelSpec::padding_row).
inline constexpr int64_t kPaddingReading = 3;
// Since these rules a column of images is refused where its rows hold some.
inline constexpr int64_t kImagesReading = 4;
// Since these rules a question of another name than 'prompt' stands before the answers of a pair (bind_preference).
inline constexpr int64_t kQuestionReading = 5;
// Since these rules a call of a tool next to a text is refused too where the template prints none.
inline constexpr int64_t kCallsReading = 6;
// Since these rules a question of a name of its own stands before answers of a pair that are messages alone.
inline constexpr int64_t kMessagesQuestionReading = 6;
// Since these rules a column 'tools' next to answers of preferences is rendered.
inline constexpr int64_t kPairToolsReading = 6;

}  // namespace plimsoll
