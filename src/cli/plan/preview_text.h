// Prints a preview of rows as text, as a page and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/print.h"
#include "prepare/preview.h"

namespace plimsoll {

// Marks around what is trained, also where there is no colour.
inline constexpr const char* kLearntBegin = "⟦";
inline constexpr const char* kLearntEnd = "⟧";

// In lines of at most `columns`; trained parts have a style in addition to the marks.
std::vector<StyledText> preview_text(const Preview& preview, size_t columns);
// `title` is any text. One file that needs nothing but itself.
std::string preview_page(const Preview& preview, const std::string& title);
nlohmann::ordered_json preview_json(const Preview& preview);

}  // namespace plimsoll
