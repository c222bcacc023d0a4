#include "plan/page_assets.h"

namespace plimsoll {

const char* const kPageStyle = R"css(
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
.phases{display:flex;margin-left:68px;font-size:12px;color:var(--soft)}
.phases>div{overflow:hidden;text-align:center;padding:3px 1px;border-right:2px solid var(--back)}
.phases .name{color:var(--ink);white-space:nowrap;overflow:hidden;text-overflow:ellipsis}.stages{display:flex}.stages>span{overflow:hidden;border-top:2px solid var(--line);margin:2px 1px 0}
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
@media (max-width:720px){main{padding:16px 14px 40px}.tables{grid-template-columns:1fr}.chart{height:260px;margin-left:58px}.phases{margin-left:58px}.readout div{grid-template-columns:1fr}dl{grid-template-columns:1fr}dd{margin-bottom:6px}}
)css";

const char* const kPageScript = R"js(
const chart = document.querySelector('.chart'), cursor = document.querySelector('.cursor');
const at = document.querySelector('.readout .at'), lists = document.querySelectorAll('.readout ul');
const all = plan.programs.flatMap((program, p) => program.moments.map((moment, m) => ({p, m})));
const count = new Intl.NumberFormat('en-US');
let chosen = all.findIndex(c => c.p === plan.peak[0] && c.m === plan.peak[1]);
function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0, value = n;
  while (value >= 1024 && unit < 4) { value /= 1024; ++unit; }
  return (unit ? value.toPrecision(value >= 999.5 ? 4 : 3) : value) + ' ' + units[unit];
}
function line(colour, text, n) {
  const item = document.createElement('li'), key = document.createElement('i');
  key.className = 'key';
  key.style.background = colour;
  if (colour) item.append(key);
  const amount = document.createElement('b');
  amount.textContent = bytes(n);
  item.append(text, amount);
  item.title = count.format(n) + ' bytes';
  return item;
}
function show(index) {
  chosen = Math.max(0, Math.min(all.length - 1, index));
  const {p, m} = all[chosen], program = plan.programs[p], moment = program.moments[m];
  const [op, words, values, largest] = moment;
  const total = values.reduce((a, b) => a + b, 0);
  cursor.style.left = (program.x + (m + 0.5) / program.moments.length * program.width) * 100 + '%';
  at.textContent = bytes(total) + ' · ' + program.name + ', op ' + count.format(op + 1) + ' of ' +
      count.format(program.ops) + ': ' + plan.words[words];
  lists[0].replaceChildren(
      ...plan.components.map(([name, colour], i) => line(colour, name, values[i])).reverse());
  const head = document.createElement('li');
  head.textContent = 'largest of what comes and goes';
  lists[1].replaceChildren(head, ...largest.map(t => line('', ...plan.tensors[t])));
}
function find(event) {
  const box = chart.getBoundingClientRect();
  const x = (event.clientX - box.left) / box.width;
  const p = Math.max(0, plan.programs.findLastIndex(program => x >= program.x));
  const program = plan.programs[p], n = program.moments.length;
  const m = Math.max(0, Math.min(n - 1, Math.floor((x - program.x) / program.width * n)));
  show(all.findIndex(c => c.p === p && c.m === m));
}
chart.addEventListener('pointermove', find);
chart.addEventListener('pointerdown', find);
chart.addEventListener('keydown', event => {
  const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
  if (!step) return;
  event.preventDefault();
  show(chosen + step * (event.shiftKey ? 20 : 1));
});
show(chosen);
)js";

}  // namespace plimsoll
