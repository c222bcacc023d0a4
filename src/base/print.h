// All output of the program passes through here. Only report/ and cli/ use it: lower layers return their text
// or pass it to an observer (runs/observer.h).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/printable.h"

namespace plimsoll {

// printable_text() to standard output. A failure is remembered for finish_output().
void print(std::string_view text);
// A text with the parameters of the terminal's style ("1" is bold), or none.
struct StyledText {
  std::string text;
  const char* style = nullptr;
};
// The same as print() of all texts together; styles are those of a terminal, and nothing elsewhere.
void print_styled(std::span<const StyledText> texts);
// Hands out what print() has kept back.
void flush_output();
// At the end of every command: throws StoppedError where standard output took not all of it.
void finish_output();

// printable_text() and a newline to standard error, for notes; failures count for nothing.
void say(std::string_view text);
// From now on `hear` is called with each text of say(); null: nothing is.
void hear_what_is_said(void (*hear)(std::string_view text));

}  // namespace plimsoll
