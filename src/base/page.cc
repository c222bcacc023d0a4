#include "base/page.h"
#include "base/format.h"
#include "base/printable.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace plimsoll::page {
namespace {

const char* const kStyle = R"css(
:root{color-scheme:light dark;--back:#fff;--ink:#1c2126;--soft:#5b6670;--line:#d9dee3;--panel:#f5f7f9;--bad:#b3261e}
@media (prefers-color-scheme:dark){:root{--back:#14181c;--ink:#e6eaee;--soft:#9aa6b1;--line:#333b43;--panel:#1d2329;--bad:#ff8a80}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1080px;margin:0 auto;padding:24px 20px 48px}
h1{font-size:20px;margin:0 0 4px}h2{font-size:15px;margin:32px 0 8px}
p{margin:2px 0;color:var(--soft)}
.verdict{color:var(--ink);font-size:17px;margin:12px 0}.verdict b{font-weight:650}.bad b{color:var(--bad)}
.chart{position:relative;height:340px;margin:28px 0 0 68px;border-left:1px solid var(--line);border-bottom:1px solid var(--line);touch-action:pan-y;cursor:crosshair;outline-offset:3px}
.chart svg{position:absolute;inset:0;width:100%;height:100%;display:block}
.tick{position:absolute;right:100%;margin-right:8px;transform:translateY(50%);font-size:12px;color:var(--soft);white-space:nowrap}
.rule{position:absolute;left:0;right:0;border-top:1px solid var(--line)}
.limit{position:absolute;left:0;right:0;border-top:2px dashed var(--ink)}
.limit span{position:absolute;right:0;bottom:2px;font-size:12px;background:var(--back);padding:0 4px}
.limit.above{border-top:0}
.cursor{position:absolute;top:0;bottom:0;width:1px;background:var(--ink);pointer-events:none}
.readout{background:var(--panel);border-radius:8px;padding:10px 14px;margin-top:14px;min-height:132px;font-size:13px;overflow-wrap:anywhere}
.readout .at{font-weight:600}.readout div{display:grid;grid-template-columns:2fr 3fr;gap:0 40px}.readout ul{margin:4px 0 0;padding:0;list-style:none;color:var(--soft)}.readout li{display:flex;align-items:baseline}.readout li b{margin-left:auto;padding-left:14px;font-weight:400;color:var(--ink);font-variant-numeric:tabular-nums;white-space:nowrap}
.tables{display:grid;grid-template-columns:3fr 2fr;gap:0 40px}
table{border-collapse:collapse;width:100%;font-size:14px}
td,th{padding:4px 0;border-bottom:1px solid var(--line);text-align:left;font-weight:400}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap;padding-left:14px}
tr.sum td{font-weight:650;border-bottom:0}
i.key{display:inline-block;width:12px;height:12px;border-radius:2px;margin-right:8px;vertical-align:-1px}
.scroll{overflow-x:auto}
dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 20px;font-size:14px;margin:0}dt{color:var(--soft)}dd{margin:0}
@media (max-width:720px){main{padding:16px 14px 40px}.tables{grid-template-columns:1fr}.chart{height:260px;margin-left:58px}.readout div{grid-template-columns:1fr}dl{grid-template-columns:1fr}dd{margin-bottom:6px}}
)css";

}  // namespace

std::string head(const std::string& title, const char* style) {
  return formatted(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta "
      "name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>Plimsoll: "
      "{}</title>\n<style>{}{}</style></head>\n<body><main>\n<h1>{}</h1>\n",
      title, kStyle, style, title);
}

std::string end(std::string data, const char* script) {
  // The data stands inside a script element, which "</" would end.
  for (size_t at = data.find("</"); at != std::string::npos; at = data.find("</", at))
    data.replace(at, 2, "<\\/");
  return formatted("</main>\n<script>const data = {};{}</script></body></html>\n", data, script);
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g", value);
  return text.data();
}

std::string percent(double share) { return number(share * 100.0) + "%"; }

std::string tick(double share, const std::string& label) {
  const std::string at = "bottom:" + percent(share);
  return formatted("<div class=\"rule\" style=\"{}\"></div><div class=\"tick\" style=\"{}\">{}</div>", at, at,
                   escaped(label));
}

double tick_step(double range) {
  const double wanted = range / 5.0;
  const double power = std::pow(10.0, std::floor(std::log10(wanted)));
  for (const double times : {1.0, 2.0, 5.0})
    if (wanted <= times * power) return times * power;
  return 10.0 * power;
}

int64_t tick_bytes(int64_t top) {
  double unit = 1.0;
  while (unit * 1024.0 <= static_cast<double>(top)) unit *= 1024.0;
  double step = tick_step(static_cast<double>(top) / unit);
  // A part of the unit is given in the next smaller one, of which it must be a round number: 256 MiB, not
  // 205.
  if (step < 1.0) step = static_cast<double>(top) <= 1.25 * unit ? 0.25 : 0.5;
  return std::max<int64_t>(1, static_cast<int64_t>(step * unit));
}

}  // namespace plimsoll::page
