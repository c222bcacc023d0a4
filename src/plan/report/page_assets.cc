#include "plan/report/page_assets.h"

namespace plimsoll {

const char* const kPlanStyle = R"css(
.phases{display:flex;margin-left:68px;font-size:12px;color:var(--soft)}
.phases>div{overflow:hidden;text-align:center;padding:3px 1px;border-right:2px solid var(--back)}
.phases .name{color:var(--ink);white-space:nowrap;overflow:hidden;text-overflow:ellipsis}.stages{display:flex}.stages>span{overflow:hidden;border-top:2px solid var(--line);margin:2px 1px 0}
@media (max-width:720px){.phases{margin-left:58px}}
)css";

const char* const kPlanScript = R"js(
const chart = document.querySelector('.chart'), cursor = document.querySelector('.cursor');
const at = document.querySelector('.readout .at'), lists = document.querySelectorAll('.readout ul');
const all = data.programs.flatMap((program, p) => program.moments.map((moment, m) => ({p, m})));
const count = new Intl.NumberFormat('en-US');
let chosen = all.findIndex(c => c.p === data.peak[0] && c.m === data.peak[1]);
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
  const {p, m} = all[chosen], program = data.programs[p], moment = program.moments[m];
  const [op, words, values, largest] = moment;
  const total = values.reduce((a, b) => a + b, 0);
  cursor.style.left = (program.x + (m + 0.5) / program.moments.length * program.width) * 100 + '%';
  at.textContent = bytes(total) + ' · ' + program.name + ', op ' + count.format(op + 1) + ' of ' +
      count.format(program.ops) + ': ' + data.words[words];
  lists[0].replaceChildren(
      ...data.components.map(([name, colour], i) => line(colour, name, values[i])).reverse());
  const head = document.createElement('li');
  head.textContent = 'largest of what comes and goes';
  lists[1].replaceChildren(head, ...largest.map(t => line('', ...data.tensors[t])));
}
function find(event) {
  const box = chart.getBoundingClientRect();
  const x = (event.clientX - box.left) / box.width;
  const p = Math.max(0, data.programs.findLastIndex(program => x >= program.x));
  const program = data.programs[p], n = program.moments.length;
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
