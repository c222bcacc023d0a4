// Row formats that an axolotl recipe defines for itself, as a chat template.
#pragma once

#include <string>

namespace plimsoll {

// The formats of axolotl's row types that recipes define: Python's, with {instruction}, {input} and {system}.
struct InstructionFormats {
  std::string with_input = "{instruction} {input} ";
  std::string without_input = "{instruction} ";
  std::string system = "{system}";
  std::string usual_system = {};  // where the row has none
};
// The template of such rows, for the rules of axolotl/formats. Throws UsageError for a field that axolotl does
// not fill in.
std::string instruction_template(const InstructionFormats& formats);

}  // namespace plimsoll
