// Parts that all HTML pages share. Each page is one file that needs nothing else.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace plimsoll::page {

// From the doctype to the page's heading; `title` is HTML. `style` is CSS in addition to the shared one.
std::string head(const std::string& title, const char* style);
// The end of the page: `data`, JSON, as a constant of that name, and the script that reads it.
std::string end(std::string data, const char* script);

// A foreign text on one line (printable(), base/print.h) as HTML.
std::string escaped(std::string_view text);
// Four significant digits.
std::string number(double value);
std::string percent(double share);

// A chart's line at `share` of its height, with a label next to the axis.
std::string tick(double share, const std::string& label);
// 1, 2 or 5 times a power of ten: two to five steps over the range, which is above 0.
double tick_step(double range);
// The same times a binary unit, or a quarter or half of one.
int64_t tick_bytes(int64_t top);

}  // namespace plimsoll::page
