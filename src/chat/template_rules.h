// Rules by which the text of a rendered conversation becomes tokens and targets. Tools differ here even where
// their texts are the same.
#pragma once

#include <cstdint>
#include <string_view>

namespace plimsoll {

struct TemplateRules {
  // whole: the text is tokenised once. pieces: it is cut at kCut, kCutBare and at the ends of generation
  // blocks, and each piece is tokenised by itself.
  enum class Tokens : uint8_t { whole, pieces };
  // The way in which a conversation that is too long is cut: as data.truncation says; a part of each prompt
  // and response is kept, so that the response stays (LLaMA-Factory); or the beginning is kept, with the
  // end-of-text token instead of its last token (torchtune).
  enum class Cutting : uint8_t { side, turns, ended };
  // The part of an answer that is trained: what the template marks, with its end token; or the content and
  // the tokenizer's end-of-text token within three tokens behind it (axolotl).
  enum class Answers : uint8_t { marked, contents };
  Tokens tokens = Tokens::whole;
  Cutting cutting = Cutting::side;
  Answers answers = Answers::marked;
  // The token that Cutting::ended puts at the end is a target where the one it replaces was.
  bool end_is_learnt = false;
  // The last token is never a target.
  bool last_is_hidden = false;
  // The end-of-text token stands behind the last answer alone, even of a row that is cut. Behind every answer before
  // it, it is the target where the next prompt's first token stands (LLaMA-Factory's efficient_eos).
  bool ends_once = false;
};

// Characters that no text holds (U+FDD1 and U+FDD2 are noncharacters): they mark where a text is cut into
// pieces. A tokenizer that puts a space before a text puts none behind kCutBare.
inline constexpr std::string_view kCut = "\uFDD1";
inline constexpr std::string_view kCutBare = "\uFDD2";

}  // namespace plimsoll
