// The forms of an RMS norm, by what it makes of a normalised row and its weight: attribute `form` of rms_norm and of
// its gradient.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "graph/graph.h"

namespace plimsoll {

enum class NormForm : uint8_t {
  round_first,  // weight * round(n), as Llama has it; the attribute is absent
  round_last,   // round(n * weight), as OLMo 2 has it
  plus_one,     // round(n * (1 + weight)), as Gemma has it: weights begin at 0
};

inline constexpr std::string_view kNormForm = "form";

inline std::string_view to_string(NormForm form) {
  return form == NormForm::plus_one     ? "plus_one"
         : form == NormForm::round_last ? "round_last"
                                        : "round_first";
}
inline NormForm norm_form(const Op& op) {
  if (!op.attrs.contains(kNormForm)) return NormForm::round_first;
  return op.attr_text(kNormForm) == "plus_one" ? NormForm::plus_one : NormForm::round_last;
}
inline void set_norm_form(Attrs& attrs, NormForm form) {
  if (form != NormForm::round_first) attrs[kNormForm] = std::string(to_string(form));
}

}  // namespace plimsoll
