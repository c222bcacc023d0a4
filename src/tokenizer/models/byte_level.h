// GPT-2's printable alphabet for bytes: 33-126, 161-172 and 174-255 stand for themselves, the other 68 bytes
// in increasing order become U+0100 to U+0143 (a space is U+0120).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace plimsoll {

// The character of one byte, as UTF-8.
std::string_view byte_level_char(unsigned char byte);
// Appends the characters of `bytes`.
void append_byte_level(std::string_view bytes, std::string& out);
// Appends the bytes `token` stands for; a token with any character outside the alphabet is appended as it is.
void append_bytes_of_token(std::string_view token, std::string& out);
// The number of bytes that `token` stands for, if `text` begins with them and each is of the alphabet; else
// 0.
size_t bytes_of_token_in(std::string_view token, std::string_view text);

}  // namespace plimsoll
