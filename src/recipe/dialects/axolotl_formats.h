// Row formats that an axolotl recipe defines for itself, as a chat template.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace plimsoll {

// The formats of axolotl's row types that recipes define: Python's, with {instruction}, {input} and {system}.
struct InstructionFormats {
  std::string with_input = "{instruction} {input} ";
  std::string without_input = "{instruction} ";
  std::string system = "{system}";
  std::string usual_system = {};   // where the row has none
  std::string before_answer = {};  // trained with it
};
// The template of such rows, for the rules of axolotl/formats. Throws UsageError for a field that axolotl does
// not fill in.
std::string instruction_template(const InstructionFormats& formats);

// Rows of a type that axolotl names itself: a question, its answer and formats between them.
struct AxolotlRows {
  std::vector<std::pair<std::string, std::string>> columns;
  std::string chat_template;  // one of ours; empty: the formats decide
  InstructionFormats formats = {};
};
std::optional<AxolotlRows> named_rows(const std::string& type);
// The types that named_rows knows, for a message.
std::string named_row_types();

}  // namespace plimsoll
