// Handles text as Python does: code points, white space, case, repr().
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll::jinja {

// All texts are valid UTF-8.

size_t count_code_points(std::string_view text);
// The byte at which code point `index` starts; the end of `text` beyond its last one.
size_t byte_of_code_point(std::string_view text, size_t index);
// The code point at `text[at]`; moves `at` behind it.
char32_t next_code_point(std::string_view text, size_t& at);

bool is_space(char32_t code);  // str.isspace
bool is_space(std::string_view text);
// Without what is white space, or one of the code points of `chars`, at its ends.
std::string_view strip_left(std::string_view text, const std::string* chars = nullptr);
std::string_view strip_right(std::string_view text, const std::string* chars = nullptr);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string capitalize(std::string_view text);    // str.capitalize
std::string python_title(std::string_view text);  // str.title
bool is_all_upper(std::string_view text);         // str.isupper
bool is_all_lower(std::string_view text);

std::vector<std::string_view> split_lines(std::string_view text);

std::string repr(std::string_view text);
std::string repr(double value);

}  // namespace plimsoll::jinja
