#include "cli/top/top_page.h"

namespace plimsoll {

const char* const kTopStyle = R"css(
#state{color:var(--ink)}#state.bad{color:var(--bad)}
.device{display:grid;grid-template-columns:110px 1fr max-content;gap:4px 14px;align-items:center;font-size:14px;margin:6px 0}
.device b{font-weight:600;overflow-wrap:anywhere}.device span{font-variant-numeric:tabular-nums;color:var(--soft)}
.meter{position:relative;height:16px;border-radius:4px;background:var(--line);overflow:hidden}
.meter i{position:absolute;left:0;top:0;bottom:0;background:#0072b2;opacity:.35}.meter i+i{opacity:1}
.chart{height:130px;margin-top:16px;cursor:default}
.chart path{fill:none;stroke:#0072b2;stroke-width:2;vector-effect:non-scaling-stroke}
td.note{color:var(--bad);overflow-wrap:anywhere;padding-left:14px}
.axis{display:flex;justify-content:space-between;margin-left:68px;font-size:12px;color:var(--soft);padding-top:3px}
td.name{overflow-wrap:break-word;min-width:5em}td,th{padding-right:14px}th{white-space:nowrap}
@media (max-width:720px){.device{grid-template-columns:70px 1fr}.device span{grid-column:1/-1}.more{display:none}td,th{padding-right:8px}}
)css";

const char* const kTopBody = R"html(
<p id="state">waiting for the first look</p>
<p id="host"></p>
<h2>Devices</h2><div id="devices"></div>
<h2>Used by runs, of what cpu:0 has for them</h2>
<div class="chart"><div class="rule" style="bottom:50%"></div><div class="tick" style="bottom:50%">50 %</div>
<div class="rule" style="bottom:100%"></div><div class="tick" style="bottom:100%">100 %</div><svg viewBox="0 0 1000 1000" preserveAspectRatio="none"><path id="course"/></svg></div>
<div class="axis"><span id="from"></span><span>now</span></div>
<h2>Runs</h2><div class="scroll"><table id="runs"></table></div>
<p>All that is known of a run: <code>plimsoll queue show ID</code>; what it wrote: <code>plimsoll queue logs ID</code></p>
<h2>Others</h2><div class="scroll"><table id="foreign"></table></div>
)html";

const char* const kTopScript = R"js(
const $ = id => document.getElementById(id);
// As the program prints them (base/units.cc): a number in the middle becomes the even one.
function fixed(n, digits) {
  const scaled = n * 10 ** digits, whole = Math.floor(scaled);
  const tie = scaled - whole === 0.5 && n * 2 ** (digits + 1) % 1 === 0;  // no product that was rounded to one
  return (tie ? (whole + whole % 2) / 10 ** digits : n).toFixed(digits);
}
function bytes(n) {
  if (n === null || n === undefined) return '-';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (n >= 1024 && unit < 4) { n /= 1024; unit += 1; }
  return (unit ? fixed(n, n < 9.995 ? 2 : n < 99.95 ? 1 : 0) : n) + ' ' + units[unit];
}
function duration(s) {
  if (s === null || s === undefined) return '-';
  if (s < 1e-3) return fixed(s * 1e6, 0) + ' us';
  if (s < 1) return fixed(s * 1e3, 0) + ' ms';
  if (s < 120) return fixed(s, s < 10 ? 2 : 0) + ' s';
  s = Math.round(s);
  const two = n => String(Math.floor(n)).padStart(2, '0');
  return s < 3600 ? Math.floor(s / 60) + ':' + two(s % 60) : Math.floor(s / 3600) + ':' + two(s / 60 % 60) + ':' + two(s % 60);
}
function loss(n) { return n === null || n === undefined ? '-' : Math.abs(n) < 1e4 ? n.toFixed(4) : n.toPrecision(3); }
function make(tag, text, name) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (name) element.className = name;
  return element;
}
function table(element, titles, rows) {
  const made = [titles.map(([title, name]) => make('th', title, name))].concat(
    rows.map(row => row.map((text, i) => make('td', text, titles[i][1]))));
  element.replaceChildren(...made.map(cells => { const row = make('tr'); row.append(...cells); return row; }));
}
const shares = [];
function draw(frame) {
  $('state').textContent = (frame.worker ? 'worker runs' : 'no worker runs') + (frame.draining ? ', draining' : '') +
    (frame.paused ? ', paused' : '') + ' · ' + new Date(frame.time * 1000).toLocaleString();
  $('state').className = '';
  const waited = Object.entries(frame.pressure).filter(([, share]) => share !== null).map(([kind, share]) => kind + ' ' + share + ' %');
  $('host').textContent = 'host ' + bytes(frame.memory_bytes) + ', available ' + bytes(frame.available_bytes) + ', load ' +
    frame.load.toFixed(2) + (waited.length ? '; waited in the last 10 s: ' + waited.join(', ') : '');
  $('devices').replaceChildren(...frame.devices.map(one => {
    const row = make('div', undefined, 'device'), meter = make('div', undefined, 'meter');
    for (const part of [one.reserved_bytes, one.used_bytes || 0]) {
      const bar = make('i');
      bar.style.width = Math.min(100, 100 * part / Math.max(1, one.capacity_bytes)) + '%';
      meter.append(bar);
    }
    row.append(make('b', one.name), meter, make('span', 'used ' + bytes(one.used_bytes) + ', reserved ' + bytes(one.reserved_bytes) +
      ' of ' + bytes(one.capacity_bytes) + (one.memory_bytes ? ', others ' + bytes(one.others_bytes) : '') + (one.problem ? ', ' + one.problem : '') + (one.threads ? ', threads ' + one.threads_reserved + '/' + one.threads : '') + ', runs ' + one.runs));
    return row;
  }));
  const host = frame.devices[0];
  shares.push({time: frame.time, share: Math.min(1, (host.used_bytes || 0) / Math.max(1, host.capacity_bytes))});
  if (shares.length > 600) shares.shift();
  const first = shares[0].time, seconds = frame.time - first;
  $('course').setAttribute('d', shares.map((one, i) => (i ? 'L' : 'M') + (seconds > 0 ? 1000 * (one.time - first) / seconds : 0).toFixed(1) + ' ' +
    (1000 - 1000 * one.share).toFixed(1)).join(''));
  $('from').textContent = duration(Math.round(seconds)) + ' ago';
  // Narrow screens leave the columns of class more out.
  const n = 'n', more = 'n more';
  table($('runs'), [['id', n], ['name', 'name'], ['state'], ['device', 'more'], ['planned', more], ['used', n], ['peak', more], ['cpu', more], ['step', n], ['s/step', more], ['left', n], ['loss', n], ['eval', more], ['note', 'note']],
    frame.runs.map(run => [run.id, run.name, run.state, run.devices.join(', ') || '-', bytes(run.reserved_host_bytes), bytes(run.used_host_bytes),
      bytes(run.peak_host_bytes), run.cores === null ? '-' : run.cores.toFixed(1), run.progress ? run.progress.step + '/' + run.progress.steps : '-',
      run.progress ? duration(run.progress.step_seconds) : '-', duration(run.seconds_left), loss(run.progress && run.progress.loss), loss(run.progress && run.progress.best_loss),
      run.growth_bytes_per_second ? 'grows by ' + bytes(60 * run.growth_bytes_per_second) + ' a minute' : run.note]));
  table($('foreign'), [['pid', n], ['name', 'name'], ['resident', n], ['cpu', n]],
    frame.foreign.map(one => [one.pid, one.name, bytes(one.resident_bytes), one.cores === null ? '-' : one.cores.toFixed(1)]));
}
const events = new EventSource('/events' + location.search);
events.onmessage = event => draw(JSON.parse(event.data));
events.onerror = () => { $('state').textContent = 'plimsoll top does not answer; trying again'; $('state').className = 'bad'; };
)js";

}  // namespace plimsoll
