// The steps of a decoder, one token at a time.
#pragma once

#include <memory>
#include <string>

#include "tokenizer/steps/decoder.h"

namespace plimsoll {

using Sink = std::unique_ptr<TokenSink>;

inline constexpr size_t kMostTokenText = size_t{64} << 20;  // bytes that a step may make of one token

// Appends to `out`.
Sink end_of_steps(std::string& out);
// Bytes spelled in the alphabet of byte_level.h, as one text in parts.
Sink byte_level_step(Sink next);
// "<0xE2>" and the like. `parts`: each character is a token as soon as it is complete.
Sink byte_fallback_step(bool parts, Sink next);
// All tokens as one.
Sink fuse_step(Sink next);
// `mark` becomes a space, or nothing in the first token if `drop_first`.
Sink metaspace_step(const std::string& mark, bool drop_first, Sink next);
// Spaces before all tokens but the first and those that start with `prefix`. `clean_up` closes the gaps
// before English punctuation and contractions.
Sink word_piece_step(const std::string& prefix, bool clean_up, Sink next);
Sink replace_step(const Pattern& pattern, const std::string& content, Sink next);
// Removes `content` at most `start` times at the start and `stop` times at the end: of each token, or, if
// `joined`, of all of them as one text.
Sink strip_step(const std::string& content, size_t start, size_t stop, bool joined, Sink next);
// `suffix` becomes a space, or nothing in the last token.
Sink bpe_suffix_step(const std::string& suffix, Sink next);
Sink join_by_spaces_step(Sink next);

}  // namespace plimsoll
