#include "report/page_assets.h"

namespace plimsoll {

const char* const kRunStyle = R"css(
.chart{height:190px;margin-top:16px}
.chart svg{overflow:visible}
.chart path,.chart circle{fill:none;stroke:var(--hue);stroke-width:2;stroke-linejoin:round;stroke-linecap:round;vector-effect:non-scaling-stroke}
.chart path.faint{opacity:.35;stroke-width:1}
.dot{position:absolute;width:9px;height:9px;margin:0 0 -4.5px -4.5px;border:2px solid var(--back);border-radius:5px}
.mark{position:absolute;top:0;bottom:0;border-left:1px dashed var(--soft);opacity:.55}
.limit{border-color:var(--soft)}
.axis{display:flex;justify-content:space-between;margin-left:68px;font-size:12px;color:var(--soft);padding-top:3px}
.readout{position:sticky;top:8px;z-index:1;min-height:0;display:flex;flex-wrap:wrap;gap:0 22px;border:1px solid var(--line)}
.readout b{font-weight:600;font-variant-numeric:tabular-nums}
h2 small{font-weight:400;color:var(--soft);font-size:13px}
h2{display:flex;flex-wrap:wrap;align-items:baseline;gap:0 10px}
.events{list-style:none;margin:0;padding:0;font-size:14px;font-variant-numeric:tabular-nums}
.events li{display:flex;flex-wrap:wrap;gap:0 14px;padding:4px 0;border-bottom:1px solid var(--line)}
.events span{color:var(--soft)}.events .step{min-width:6.5em;text-align:right}.events b{font-weight:400;overflow-wrap:anywhere}
.cursor{opacity:.5}
@media (prefers-color-scheme:dark){.chart path{stroke:color-mix(in oklab,var(--hue),#fff 30%)}.chart path.faint{opacity:.5}}
.chart:focus-visible{outline:2px solid var(--hue)}
@media (max-width:720px){.chart{height:150px}.axis{margin-left:58px}.readout{gap:0 14px;font-size:12px}}
)css";

const char* const kRunScript = R"js(
const charts = document.querySelectorAll('.chart'), cursors = document.querySelectorAll('.cursor');
const fields = document.querySelectorAll('.readout b'), range = data.last - data.first;
let chosen = data.points.length - 1;
function show(index) {
  chosen = Math.max(0, Math.min(data.points.length - 1, index));
  const [step, ...words] = data.points[chosen];
  for (const cursor of cursors) cursor.style.left = (range ? (step - data.first) / range : 0.5) * 100 + '%';
  [step.toLocaleString('en-US'), ...words].forEach((text, i) => { fields[i].textContent = text; });
}
for (const chart of charts) {
  const find = event => {
    const box = chart.getBoundingClientRect();
    const step = data.first + (event.clientX - box.left) / box.width * range;
    let best = 0;
    data.points.forEach((p, i) => {
      if (Math.abs(p[0] - step) < Math.abs(data.points[best][0] - step)) best = i;
    });
    show(best);
  };
  chart.addEventListener('pointermove', find);
  chart.addEventListener('pointerdown', find);
  chart.addEventListener('keydown', event => {
    const move = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!move) return;
    event.preventDefault();
    show(chosen + move * (event.shiftKey ? 20 : 1));
  });
}
if (data.points.length) show(chosen);
)js";

}  // namespace plimsoll
