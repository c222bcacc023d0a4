// Template source to tokens, white space control included: trim_blocks and lstrip_blocks are on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/value.h"

namespace plimsoll::jinja {

// A Failure with its line.
struct SyntaxFailure : Failure {
  SyntaxFailure(int at, const std::string& message) : Failure(message), line(at) {}
  int line;
};

enum class Kind : uint8_t {
  data,
  block_begin,
  block_end,
  print_begin,
  print_end,
  name,
  string,
  integer,
  real,
  op,
  end
};

struct Token {
  Kind kind = Kind::end;
  int line = 1;
  std::string text;  // of data, names and operators; a string's value
  int64_t integer = 0;
  double real = 0.0;
};

// "'endfor'", "the end of the template": for messages.
std::string describe(const Token& token);

// Ends with a token of kind `end`. Throws SyntaxFailure.
std::vector<Token> tokenize(std::string_view source);

}  // namespace plimsoll::jinja
