"use strict";
// The page of a station. Everything that comes from a station is put into the document as text, never as HTML.

const main = document.getElementById("main");
const state = { overview: null, view: null, sort: {}, filter: "", stop: () => {} };

// ---- small helpers

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "text") element.textContent = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") element.textContent = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

const put = (element, text) => { if (element.textContent !== text) element.textContent = text; };

function count(value) {
  if (value === null || value === undefined) return "";
  const n = Math.abs(value);
  if (n >= 1e9) return (value / 1e9).toFixed(1) + " G";
  if (n >= 1e6) return (value / 1e6).toFixed(1) + " M";
  if (n >= 1e4) return (value / 1e3).toFixed(1) + " k";
  return Number.isInteger(value) ? String(value) : value.toFixed(n < 10 ? 2 : 0);
}

function seconds(value) {
  if (value === null || value === undefined) return "";
  if (value >= 86400) return (value / 86400).toFixed(1) + " d";
  if (value >= 3600) return (value / 3600).toFixed(1) + " h";
  if (value >= 60) return (value / 60).toFixed(1) + " min";
  if (value >= 1) return value.toFixed(2) + " s";
  if (value >= 1e-3) return (value * 1e3).toFixed(1) + " ms";
  return Math.round(value * 1e6) + " µs";
}

function bytes(value) {
  if (value === null || value === undefined) return "";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return (unit ? value.toFixed(1) : value) + " " + units[unit];
}

const reasons = (dropped) => Object.entries(dropped || {}).map(([why, n]) => `${count(n)} ${why}`).join(", ");
const total = (dropped) => Object.values(dropped || {}).reduce((a, b) => a + b, 0);
const query = (values) => new URLSearchParams(Object.entries(values).filter(([, v]) => v !== null && v !== "")).toString();

async function ask(path, values = {}) {
  const response = await fetch(`${path}?${query(values)}`, { credentials: "same-origin" });
  const answer = await response.json().catch(() => ({ problem: `the station answered ${response.status}` }));
  if (!response.ok) throw Object.assign(new Error(answer.problem || "no answer"), answer);
  return answer;
}

function stationName(id) {
  const one = state.overview?.stations.find((station) => station.id === id);
  return one ? one.name || one.id : id;
}

// ---- sortable tables, updated in place

function table(key, columns, { cards = true, pick = null, label } = {}) {
  const sort = state.sort[key] || (state.sort[key] = { by: 0, down: false });
  const heads = columns.map((column, at) => make("th", { class: column.n ? "n" : null, scope: "col" },
    make("button", { type: "button", text: column.head, onclick: () => {
      if (sort.by === at) sort.down = !sort.down;
      else { sort.by = at; sort.down = Boolean(column.n); }
      element.update(element.shown);
    } })));
  const body = make("tbody");
  const element = make("table", { class: cards ? "cards" : null, "aria-label": label },
    make("thead", {}, make("tr", {}, ...heads)), body);
  element.shown = [];
  element.update = (rows) => {
    element.shown = rows;
    const column = columns[sort.by];
    const value = column.sort || column.text;
    const sorted = [...rows].sort((a, b) => {
      const x = value(a) ?? "", y = value(b) ?? "";
      const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
      return sort.down ? -order : order;
    });
    heads.forEach((head, at) => head.setAttribute("aria-sort", at !== sort.by ? "none" : sort.down ? "descending" : "ascending"));
    while (body.rows.length > sorted.length) body.deleteRow(-1);
    sorted.forEach((row, at) => {
      let line = body.rows[at];
      if (!line) {
        line = make("tr", pick ? { class: "pick", tabindex: "0" } : {},
          ...columns.map((c) => make("td", { class: c.n ? "n" : c.wrap ? "wrap" : null, "data-label": c.head })));
        if (pick) {
          line.addEventListener("click", () => pick(line.row));
          line.addEventListener("keydown", (event) => { if (event.key === "Enter") pick(line.row); });
        }
        body.append(line);
      }
      line.row = row;
      columns.forEach((c, n) => {
        const cell = line.cells[n];
        put(cell, String(c.text(row) ?? ""));
        const tone = c.tone ? c.tone(row) : "";
        const wanted = [c.n ? "n" : c.wrap ? "wrap" : "", tone].filter(Boolean).join(" ");
        if (cell.className !== wanted) cell.className = wanted;
        if (c.title) { const said = c.title(row); if (cell.title !== said) cell.title = said; }
      });
    });
  };
  return element;
}

// ---- charts

function colours() {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue(name).trim();
  return { text: get("--quiet"), line: get("--line"), of: ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6"].map(get) };
}

function chart(holder, labels, { unit = "" } = {}) {
  const theme = colours();
  const axis = { stroke: theme.text, grid: { stroke: theme.line, width: 1 }, ticks: { stroke: theme.line }, size: 60 };
  const plot = new uPlot({
    width: Math.max(200, holder.clientWidth), height: 190, cursor: { drag: { x: false, y: false } },
    series: [{}, ...labels.map((label, n) => ({ label, stroke: theme.of[n % 6], width: 2, points: { show: false },
      value: (_, v) => (v === null || v === undefined ? "" : count(v) + unit) }))],
    axes: [axis, { ...axis, values: (_, ticks) => ticks.map((tick) => count(tick) + unit) }],
  }, [[], ...labels.map(() => [])], holder);
  const resized = new ResizeObserver(() => plot.setSize({ width: Math.max(200, holder.clientWidth), height: 190 }));
  resized.observe(holder);
  return { set: (data) => plot.setData(data), destroy: () => { resized.disconnect(); plot.destroy(); } };
}

// ---- views

const open = (name) => { location.hash = `#/channel/${encodeURIComponent(name)}`; };

function channelsView() {
  const box = make("input", { type: "search", placeholder: "part of a name", "aria-label": "Filter channels by name",
    id: "filter", value: state.filter, oninput: () => { state.filter = box.value; draw(); } });
  const note = make("span", { class: "quiet" });
  const rows = table("channels", [
    { head: "channel", text: (c) => c.name },
    { head: "station", text: (c) => stationName(c.station) },
    { head: "events/s", n: true, text: (c) => count(c.rate), sort: (c) => c.rate },
    { head: "deliveries/s", n: true, text: (c) => count(c.out), sort: (c) => c.out },
    { head: "waiting", n: true, text: (c) => count(c.pending), sort: (c) => c.pending, tone: (c) => (c.pending > 1000 ? "warn" : "") },
    { head: "wait", n: true, text: (c) => seconds(c.wait), sort: (c) => c.wait ?? -1, title: () => "on average, by Little's law: waiting / deliveries per second" },
    { head: "dropped/s", n: true, text: (c) => (c.drop_rate ? count(c.drop_rate) : ""), sort: (c) => c.drop_rate, tone: () => "bad" },
    { head: "dropped", n: true, text: (c) => (total(c.dropped) ? count(total(c.dropped)) : ""), sort: (c) => total(c.dropped), title: (c) => reasons(c.dropped), tone: () => "warn" },
    { head: "lag", n: true, text: (c) => (c.durable.length ? count(c.lag) : ""), sort: (c) => (c.durable.length ? c.lag : -1), tone: (c) => (c.lag > 1000 ? "warn" : "") },
    { head: "receivers", n: true, text: (c) => c.receivers_total, sort: (c) => c.receivers_total },
    { head: "events", n: true, text: (c) => count(c.pushed), sort: (c) => c.pushed },
    { head: "types", text: (c) => c.types.join(", ") },
  ], { pick: (c) => open(c.name), label: "Channels" });
  main.replaceChildren(make("div", { class: "row" }, make("h2", { text: "Channels" }), box, note), make("div", { class: "scroll panel" }, rows));
  function draw() {
    const all = state.overview?.channels || [];
    const wanted = state.filter.toLowerCase();
    const found = all.filter((c) => c.name.toLowerCase().includes(wanted));
    rows.update(found.slice(0, 2000));
    const more = state.overview?.left_out ? `, ${state.overview.left_out} not listed` : "";
    put(note, all.length ? `${found.length} of ${all.length}${more}; sampled once a second` : "no channel is open yet");
  }
  return { draw };
}

function journalView() {
  const kept = table("journal", [
    { head: "channel", text: (c) => c.name },
    { head: "station", text: (c) => stationName(c.station) },
    { head: "size", n: true, text: (c) => bytes(c.journal.bytes), sort: (c) => c.journal.bytes },
    { head: "events", n: true, text: (c) => count(c.journal.end - c.journal.earliest), sort: (c) => c.journal.end - c.journal.earliest },
    { head: "offsets", text: (c) => `${c.journal.earliest} to ${c.journal.end}`, sort: (c) => c.journal.end },
    { head: "heads", n: true, text: (c) => c.journal.heads, sort: (c) => c.journal.heads },
    { head: "sealed", n: true, text: (c) => c.journal.segments, sort: (c) => c.journal.segments },
    { head: "removed", n: true, text: (c) => count(c.journal.dropped_events), sort: (c) => c.journal.dropped_events, title: () => "by retention" },
    { head: "damaged", n: true, text: (c) => c.journal.damaged || "", sort: (c) => c.journal.damaged, tone: () => "bad" },
    { head: "in line", n: true, text: (c) => bytes(c.journal.waiting_bytes), sort: (c) => c.journal.waiting_bytes },
  ], { pick: (c) => open(c.name), label: "Histories" });
  state.sort.durable ||= { by: 3, down: true };
  const behind = table("durable", [
    { head: "consumer", text: (d) => d.name + (d.is_group ? " (group)" : "") },
    { head: "channel", text: (d) => d.channel },
    { head: "station", text: (d) => stationName(d.station) },
    { head: "lag", n: true, text: (d) => count(d.lag), sort: (d) => d.lag, tone: (d) => (d.lag > 1000 ? "bad" : d.lag ? "warn" : "good") },
    { head: "acknowledged below", n: true, text: (d) => d.acknowledged, sort: (d) => d.acknowledged },
    { head: "owner", text: (d) => d.owner },
    { head: "last seen", n: true, text: (d) => (d.seen_ts && state.overview.time ? seconds(Math.max(0, state.overview.time - d.seen_ts / 1e9)) + " ago" : ""), sort: (d) => -d.seen_ts },
  ], { pick: (d) => open(d.channel), label: "Durable consumers and Spark queries" });
  main.replaceChildren(
    make("h2", { text: "Durable consumers and Spark queries" }), make("div", { class: "scroll panel" }, behind),
    make("h2", { text: "Histories" }), make("div", { class: "scroll panel" }, kept));
  return { draw: () => {
    const channels = state.overview?.channels || [];
    kept.update(channels.filter((c) => c.journal));
    behind.update(channels.flatMap((c) => c.durable.map((d) => ({ ...d, channel: c.name, station: c.station }))));
  } };
}

function stationsView() {
  const all = table("stations", [
    { head: "station", text: (s) => s.name || s.id },
    { head: "id", text: (s) => s.id },
    { head: "process", n: true, text: (s) => s.pid, sort: (s) => s.pid },
    { head: "up", n: true, text: (s) => seconds(s.uptime), sort: (s) => s.uptime },
    { head: "version", text: (s) => s.version },
    { head: "longest callback", n: true, text: (s) => (s.busy > 0.01 ? seconds(s.busy) : ""), sort: (s) => s.busy, tone: (s) => (s.busy > 1 ? "bad" : "") },
    { head: "disk free", n: true, text: (s) => bytes(s.free), sort: (s) => s.free ?? -1 },
    { head: "stalls", text: (s) => reasons(s.stalls), tone: () => "warn" },
  ], { label: "Stations" });
  const links = table("links", [
    { head: "from", text: (l) => l.from }, { head: "to", text: (l) => l.name || l.peer },
    { head: "carrier", text: (l) => (l.connected ? l.carrier : "no connection"), tone: (l) => (l.connected ? "" : "bad") },
    { head: "sent", n: true, text: (l) => count(l.events_sent), sort: (l) => l.events_sent },
    { head: "bytes out", n: true, text: (l) => bytes(l.bytes_sent), sort: (l) => l.bytes_sent },
    { head: "bytes in", n: true, text: (l) => bytes(l.bytes_received), sort: (l) => l.bytes_received },
    { head: "lost", n: true, text: (l) => l.lost + l.missed + l.overtaken || "", sort: (l) => l.lost + l.missed + l.overtaken, tone: () => "bad" },
    { head: "why not shared memory", wrap: true, text: (l) => l.carrier_reason },
  ], { label: "Links" });
  const silent = make("p", { class: "bad" });
  main.replaceChildren(make("h2", { text: "Stations" }), silent, make("div", { class: "scroll panel" }, all),
    make("h2", { text: "Links" }), make("div", { class: "scroll panel" }, links));
  return { draw: () => {
    const stations = state.overview?.stations || [];
    all.update(stations);
    links.update(stations.flatMap((s) => s.links.map((l) => ({ ...l, from: s.name || s.id }))));
    put(silent, state.overview?.silent.length ? `no answer from ${state.overview.silent.join(", ")}` : "");
  } };
}

const MEANT = ["closed", "coalesced", "separated"];  // drops that somebody asked for

function problems() {
  const found = [];
  for (const c of state.overview?.channels || []) {
    const where = `${c.name} in ${stationName(c.station)}`;
    for (const [station, why] of Object.entries(c.unmatched)) for (const text of why) found.push({ what: "not matched", where, text: `${stationName(station)}: ${text}`, channel: c.name });
    for (const [group, others] of Object.entries(c.groups_apart)) found.push({ what: "group apart", where, text: `group ${group} is in ${others.map(stationName).join(", ")} too: without a journal each station's members are a group by themselves. durability='persistent' makes them one.`, channel: c.name });
    for (const [name, , , suspended] of c.receivers) if (suspended) found.push({ what: "suspended receiver", where, text: `${name} takes nothing: what comes for it is dropped until it does`, channel: c.name });
    if (c.suspended) found.push({ what: "suspended channel", where, text: "its owner has suspended it: pushes are refused", channel: c.name });
    if (c.failed) found.push({ what: "failing callbacks", where, text: `${c.failed} events for which a callback raised; the log and on_error have the exceptions`, channel: c.name });
    const lost = Object.fromEntries(Object.entries(c.dropped).filter(([why]) => !MEANT.includes(why)));
    if (total(lost)) found.push({ what: "dropped events", where, text: `${reasons(lost)}: a receiver is slower than what comes. A larger queue=, or durability='persistent', loses nothing.`, channel: c.name });
    if (c.journal?.damaged) found.push({ what: "damaged history", where, text: `${c.journal.damaged} events cannot be read: helio journal verify`, channel: c.name });
    if (c.lag > 1000) found.push({ what: "lagging consumer", where, text: `${c.lag} events behind`, channel: c.name });
  }
  for (const s of state.overview?.stations || []) {
    if (s.busy > 1) found.push({ what: "stuck callback", where: s.name || s.id, text: `a callback has been running for ${seconds(s.busy)}` });
    for (const l of s.links) if (l.suspected) found.push({ what: "suspected station", where: s.name || s.id, text: `${l.name || l.peer} is there and says nothing` });
  }
  for (const name of state.overview?.silent || []) found.push({ what: "silent station", where: name, text: "does not answer: it may be stopped, or busy" });
  return found;
}

function problemsView() {
  const all = table("problems", [
    { head: "what", text: (p) => p.what }, { head: "where", text: (p) => p.where },
    { head: "explanation", wrap: true, text: (p) => p.text },
  ], { pick: (p) => p.channel && open(p.channel), label: "Problems" });
  const none = make("p", { class: "good" });
  main.replaceChildren(make("h2", { text: "Problems" }), none, make("div", { class: "scroll panel" }, all),
    make("p", { class: "quiet", text: "helio doctor looks at more: permissions, disk, versions, names, dead letters; each finding has the command that mends it." }));
  return { draw: () => { const found = problems(); all.update(found); put(none, found.length ? "" : "none found"); } };
}

const GRAPH = 40;

function graphView() {
  const holder = make("div", { class: "panel scroll" });
  const note = make("p", { class: "quiet" });
  main.replaceChildren(make("h2", { text: "Suppliers, channels, receivers" }), note, holder);
  let drawn = "";
  return { draw: () => {
    const rows = [...(state.overview?.channels || [])].sort((a, b) => b.rate - a.rate || b.pushed - a.pushed);
    const shown = rows.slice(0, GRAPH);
    const key = JSON.stringify(shown.map((c) => [c.name, c.station, c.suppliers.map((s) => [s[0], s[2] > 0]), c.receivers.map((r) => r[0]), c.rate > 0]));
    put(note, rows.length > GRAPH ? `the ${GRAPH} busiest of ${rows.length} channels` : "a click opens a channel");
    if (key === drawn) return;
    drawn = key;
    holder.replaceChildren(graph(shown));
  } };
}

function graph(channels) {
  const width = 1080, box = 300, step = 34;
  const columns = [[], [], []];
  const edges = [];
  const node = (column, id, label, extra = {}) => {
    let one = columns[column].find((other) => other.id === id);
    if (!one) { one = { id, label, column, ...extra }; columns[column].push(one); }
    return one;
  };
  for (const c of channels) {
    const channel = node(1, c.name, c.name, { channel: c.name });
    for (const [name, remote, pushed] of c.suppliers) {
      if (remote || !pushed) continue;
      edges.push([node(0, `${c.station}/${name}`, `${stationName(c.station)}: ${name}`, { channel: c.name }), channel, c.rate > 0]);
    }
    for (const [name, kind] of c.receivers) {
      if (kind === "gateway") continue;
      edges.push([channel, node(2, `${c.station}/${c.name}/${name}`, `${stationName(c.station)}: ${name}`, { channel: c.name }), c.out > 0]);
    }
  }
  const height = 50 + step * Math.max(1, ...columns.map((column) => column.length));
  const x = [10, (width - box) / 2, width - box - 10];
  columns.forEach((column) => column.forEach((one, at) => { one.y = 40 + at * step; }));
  const picture = svg("svg", { class: "graph", viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Who supplies and receives which channel" });
  ["suppliers", "channels", "receivers"].forEach((text, n) => picture.append(svg("text", { class: "head", x: x[n], y: 22, text })));
  for (const [from, to, hot] of edges) {
    const x1 = x[from.column] + box, x2 = x[to.column], y1 = from.y + 12, y2 = to.y + 12, mid = (x1 + x2) / 2;
    picture.append(svg("path", { d: `M${x1} ${y1}C${mid} ${y1} ${mid} ${y2} ${x2} ${y2}`, class: hot ? "hot" : "" }));
  }
  for (const one of columns.flat()) {
    const cut = one.label.length > 40 ? one.label.slice(0, 39) + "…" : one.label;
    const link = svg("a", { href: `#/channel/${encodeURIComponent(one.channel)}`, class: one.column === 1 ? "channel" : "", "aria-label": one.label });
    link.append(svg("title", { text: one.label }), svg("rect", { x: x[one.column], y: one.y, width: box, height: 24, rx: 5 }), svg("text", { x: x[one.column] + 8, y: one.y + 17, text: cut }));
    picture.append(link);
  }
  return picture;
}

// ---- one channel

const KEPT = 300;

// As heliograph.delivery.latency_histogram: 1, 2, 5 in each power of ten from a microsecond on.
const BOUNDS = [-6, -5, -4, -3, -2, -1, 0, 1].flatMap((power) => [1, 2, 5].map((digit) => digit * 10 ** power)).concat(100);

function added(all) {  // the histograms of several stations
  const several = all.filter(Boolean);
  if (!several.length) return null;
  const laxities = several.map((one) => one.least_laxity_s).filter((one) => one !== null);
  return {
    buckets: several[0].buckets.map((_, n) => several.reduce((sum, one) => sum + one.buckets[n], 0)),
    longest: Math.max(...several.map((one) => one.longest_s)),
    inTime: several.reduce((sum, one) => sum + one.in_time, 0), late: several.reduce((sum, one) => sum + one.late, 0),
    laxity: laxities.length ? Math.min(...laxities) : null,
  };
}

function latencyPanel() {
  const facts = make("p", { class: "quiet", text: "shown where the channel records deliveries: hg.QoS(delivery_records=\"all\") or \"sampled\"" });
  const holder = make("div", { class: "chart" });
  const element = make("section", { class: "panel", "aria-label": "Latency" }, make("h3", { text: "From appended or pushed to delivered" }), facts, holder);
  return { element, draw: (counts) => {
    const events = counts ? total(counts.buckets) : 0;
    if (!events) return;
    const within = (share) => {
      let reached = 0;
      const at = counts.buckets.findIndex((n) => (reached += n) >= share * events);
      return seconds(Math.min(BOUNDS[at] ?? counts.longest, counts.longest));
    };
    const deadlines = counts.inTime + counts.late;
    put(facts, [`${count(events)} deliveries`, `half within ${within(0.5)}`, `95 % within ${within(0.95)}`, `99 % within ${within(0.99)}`, `longest ${seconds(counts.longest)}`,
      deadlines && `${count(counts.late)} of ${count(deadlines)} missed their deadline`,
      counts.laxity !== null && (counts.laxity < 0 ? `latest by ${seconds(-counts.laxity)}` : `closest to its deadline: ${seconds(counts.laxity)} left`)].filter(Boolean).join(" · "));
    const first = counts.buckets.findIndex((n) => n), last = counts.buckets.findLastIndex((n) => n);
    const shown = counts.buckets.slice(first, last + 1), most = Math.max(...shown), wide = 44, high = 110;
    const picture = svg("svg", { viewBox: `0 0 ${Math.max(7, shown.length) * wide} ${high + 40}`, class: "bars", role: "img",
      "aria-label": `Deliveries by latency: half within ${within(0.5)}, 99 % within ${within(0.99)}` });
    shown.forEach((n, at) => {
      const tall = n ? Math.max(2, (n / most) * high) : 0, bound = BOUNDS[first + at];
      const bar = svg("rect", { x: at * wide + 4, y: high + 14 - tall, width: wide - 8, height: tall, rx: 2 });
      bar.append(svg("title", { text: `${count(n)} within ${bound ? seconds(bound) : seconds(counts.longest)}` }));
      picture.append(bar, svg("text", { x: at * wide + wide / 2, y: high + 30, "text-anchor": "middle", text: bound ? `≤${seconds(bound).replace(/\.0+ /, " ")}` : "more" }),
        svg("text", { x: at * wide + wide / 2, y: high + 9 - tall, "text-anchor": "middle", text: n ? count(n) : "" }));
    });
    holder.replaceChildren(picture);
  } };
}

function channelView(name) {
  const facts = make("p", { class: "quiet" });
  const rateHolder = make("div", { class: "chart" }), depthHolder = make("div", { class: "chart" });
  const rates = chart(rateHolder, ["events/s", "deliveries/s", "dropped/s"]);
  const depth = chart(depthHolder, ["waiting"]);
  const receivers = table("receivers", [
    { head: "receiver", text: (r) => r.name },
    { head: "station", text: (r) => r.station },
    { head: "kind", text: (r) => r.kind + (r.group ? ` of ${r.group}` : "") },
    { head: "delivered", n: true, text: (r) => count(r.delivered), sort: (r) => r.delivered },
    { head: "waiting", n: true, text: (r) => count(r.pending), sort: (r) => r.pending },
    { head: "limit", n: true, text: (r) => count(r.limit), sort: (r) => r.limit ?? 0 },
    { head: "bytes", n: true, text: (r) => bytes(r.waiting_bytes), sort: (r) => r.waiting_bytes },
    { head: "dropped", text: (r) => reasons(r.dropped), sort: (r) => total(r.dropped), tone: () => "warn" },
    { head: "failed", n: true, text: (r) => r.failed || "", sort: (r) => r.failed, tone: () => "bad" },
    { head: "expired", n: true, text: (r) => r.expired || "", sort: (r) => r.expired, tone: () => "warn" },
    { head: "filter", wrap: true, text: (r) => r.where || "" },
  ], { label: "Receivers" });
  const suppliers = table("suppliers", [
    { head: "supplier", text: (s) => s.name }, { head: "station", text: (s) => s.station },
    { head: "events", n: true, text: (s) => count(s.pushed), sort: (s) => s.pushed },
  ], { label: "Suppliers" });
  const latency = latencyPanel();
  const troubles = make("div", { class: "bad" });
  const tail = tailPanel(name, () => receivers.shown.filter((r) => r.kind !== "gateway").map((r) => r.name));
  main.replaceChildren(
    make("div", { class: "row" }, make("h2", { text: name }), make("a", { href: "#/", text: "all channels" })), facts, troubles,
    make("div", { class: "grid" },
      make("section", { class: "panel", "aria-label": "Rates" }, make("h3", { text: "Events per second" }), rateHolder),
      make("section", { class: "panel", "aria-label": "Queue depth" }, make("h3", { text: "Waiting events" }), depthHolder),
      latency.element),
    make("p", {}), tail.element,
    make("section", { class: "panel" }, make("h3", { text: "Receivers" }), make("div", { class: "scroll" }, receivers)),
    make("section", { class: "panel" }, make("h3", { text: "Suppliers" }), make("div", { class: "scroll" }, suppliers)));
  let asked = false;
  async function draw() {
    if (asked) return;
    asked = true;
    let found;
    try { found = await ask("/api/channel", { channel: name }); } catch { return; } finally { asked = false; }
    if (!found.stations.length) { put(facts, "no station has this channel open"); return; }
    const of = (s) => s.station.name || s.station.id;
    const first = found.stations[0];
    const best = found.stations.reduce((a, b) => (b.series.pushed.reduce((x, y) => x + y, 0) > a.series.pushed.reduce((x, y) => x + y, 0) ? b : a), first);
    put(facts, [first.types.join(", "), first.durability, first.reliability, first.latency && `to be delivered within ${seconds(first.latency)}`,
      first.lifespan && `expires after ${seconds(first.lifespan)}`, first.delayed && `${first.delayed} delayed`, found.stations.length > 1 && `charts: ${of(best)}`].filter(Boolean).join(" · "));
    rates.set([best.series.time, best.series.pushed, best.series.delivered, best.series.dropped]);
    depth.set([best.series.time, best.series.pending]);
    latency.draw(added(found.stations.map((s) => s.latencies)));
    receivers.update(found.stations.flatMap((s) => s.receivers.map((r) => ({ ...r, station: of(s) }))));
    suppliers.update(found.stations.flatMap((s) => s.suppliers.map((r) => ({ ...r, station: of(s) }))));
    const bad = found.stations.flatMap((s) => Object.entries(s.unmatched).flatMap(([other, why]) => why.map((text) => `${of(s)} and ${stationName(other)}: ${text}`)));
    put(troubles, bad.join("\n"));
  }
  return { draw, stop: () => { tail.stop(); rates.destroy(); depth.destroy(); }, toggle: tail.toggle };
}

function numbers(value, path = "", found = {}) {
  if (typeof value === "number") found[path] = value;
  else if (value && typeof value === "object" && !Array.isArray(value)) {
    for (const [key, inner] of Object.entries(value)) if (Object.keys(found).length < 24) numbers(inner, path ? `${path}.${key}` : key, found);
  }
  return found;
}

function tailPanel(name, receiverNames) {
  let source = null, events = [], skipped = 0, plot = null, chosen = [], paused = false, ages = [], selected = null, pending = false, checking = 0, accepted = "";
  const points = [];
  const where = make("input", { type: "text", id: "where", placeholder: "filter, such as speed > 300", "aria-label": "Filter events, in the filter language", spellcheck: "false", autocomplete: "off", "aria-describedby": "where-problem" });
  const problem = make("div", { class: "problem", id: "where-problem", role: "alert" });
  const pause = make("button", { type: "button", text: "Pause", onclick: toggle });
  const note = make("span", { class: "quiet", "aria-live": "polite" });
  const list = make("ul", { class: "tail", "aria-label": "Events, newest first" });
  const slider = make("input", { type: "range", min: "0", max: "1", value: "1", step: "1", "aria-label": "Where in the history the tail begins", oninput: () => put(place, placeText()), onchange: () => start() });
  const place = make("span", { class: "quiet" });
  const travel = make("div", { class: "row", hidden: true }, make("span", { text: "Time travel" }), slider, place,
    make("button", { type: "button", text: "Earliest", onclick: () => { slider.value = slider.min; start(); } }),
    make("button", { type: "button", text: "Now", onclick: () => { slider.value = slider.max; start(); } }));
  const detail = make("section", { class: "panel", hidden: true, "aria-label": "Event" });
  const fields = make("div", { class: "checks", role: "group", "aria-label": "Numeric fields to plot" });
  const plotHolder = make("div", { class: "chart" });
  const latency = make("p", { class: "quiet" });
  let partitions = {};

  function placeText() {
    if (Number(slider.value) >= Number(slider.max)) return "live";
    return `from offset ${slider.value} of ${slider.max}`;
  }

  async function extent() {
    try { partitions = (await ask("/api/history", { channel: name })).partitions; } catch { return; }
    const all = Object.values(partitions);
    if (!all.length) return;
    const atEnd = Number(slider.value) >= Number(slider.max);
    slider.min = Math.min(...all.map((one) => one[0]));
    slider.max = Math.max(...all.map((one) => one[1]));
    if (atEnd) slider.value = slider.max;
    travel.hidden = false;
    put(place, placeText());
  }

  function begin() {
    if (travel.hidden || Number(slider.value) >= Number(slider.max)) return "";
    const at = Number(slider.value);
    return JSON.stringify(Object.fromEntries(Object.entries(partitions).map(([id, [first, end]]) => [id, Math.min(Math.max(first, at), end)])));
  }

  async function check() {
    const mine = ++checking, wanted = where.value;
    let answer;
    try { answer = await ask("/api/check", { channel: name, where: wanted }); } catch (error) { answer = { ok: false, reason: error.message, column: 1 }; }
    if (mine !== checking) return false;
    where.setAttribute("aria-invalid", answer.ok ? "false" : "true");
    if (answer.ok) accepted = wanted.trim();
    put(problem, answer.ok ? "" : `${wanted}\n${" ".repeat(answer.column - 1)}^ ${answer.reason}`);
    return answer.ok;
  }

  function start() {
    source?.close();
    events = []; skipped = 0; points.length = 0; ages = [];
    put(place, placeText());
    list.replaceChildren();
    put(note, "waiting for events");
    source = new EventSource(`/api/tail?${query({ channel: name, where: accepted, start: begin() })}`);
    source.addEventListener("events", (message) => receive(JSON.parse(message.data)));
    source.addEventListener("problem", (message) => { put(note, JSON.parse(message.data).problem); source.close(); });
    source.onerror = () => { if (source.readyState === EventSource.CLOSED) put(note, "the tail has ended; change the filter to begin again"); };
  }

  function receive(told) {
    if (paused) { skipped += told.events.length + told.skipped; put(note, `paused; ${count(skipped)} events passed`); return; }
    skipped += told.skipped;
    for (const one of told.events) {
      events.push(one);
      if (one.age !== undefined) ages.push(one.age);
      points.push([Date.now() / 1e3, one.event ? numbers(one.event) : {}]);
    }
    events.splice(0, Math.max(0, events.length - KEPT));
    points.splice(0, Math.max(0, points.length - 2000));
    ages.splice(0, Math.max(0, ages.length - 1000));
    if (!pending) { pending = true; requestAnimationFrame(draw); }
  }

  function draw() {
    pending = false;
    put(note, `${events.length} shown${skipped ? `, ${count(skipped)} skipped: at most 200 a second are shown` : ""}`);
    const newest = [...events].reverse().slice(0, 100);
    while (list.children.length > newest.length) list.lastChild.remove();
    newest.forEach((one, at) => {
      let button = list.children[at]?.firstChild;
      if (!button) {
        button = make("button", { type: "button", onclick: () => show(button.one) }, make("time"), make("span"));
        list.append(make("li", {}, button));
      }
      if (button.one === one) return;
      button.one = one;
      button.setAttribute("aria-pressed", one === selected ? "true" : "false");
      put(button.firstChild, String(one.header.source_ts).slice(11, 23));
      put(button.lastChild, text(one).slice(0, 400));
    });
    offerFields();
    if (ages.length) {
      const sorted = [...ages].sort((a, b) => a - b);
      const at = (share) => seconds(Math.max(0, sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))]));
      put(latency, `from the source's time to this page: median ${at(0.5)}, 99 % within ${at(0.99)}, longest ${at(1)} (last ${sorted.length} shown events)`);
    }
    if (plot && chosen.length) plot.set([points.map((p) => p[0]), ...chosen.map((field) => points.map((p) => p[1][field] ?? null))]);
  }

  const text = (one) => one.problem || (one.event === undefined ? `${bytes(one.large)}: ${one.preview}` : JSON.stringify(one.event));

  function offerFields() {
    const known = [...new Set(points.slice(-50).flatMap((p) => Object.keys(p[1])))].sort();
    if (known.join() === fields.dataset.known) return;
    fields.dataset.known = known.join();
    fields.replaceChildren(...known.map((field) => make("label", {}, make("input", { type: "checkbox", value: field, checked: chosen.includes(field), onchange: choose }), make("span", { text: field }))));
  }

  function choose() {
    chosen = [...fields.querySelectorAll("input:checked")].map((box) => box.value).slice(0, 6);
    plot?.destroy();
    plot = chosen.length ? chart(plotHolder, chosen) : null;
    draw();
  }

  function show(one) {
    selected = one;
    for (const item of list.querySelectorAll("button")) item.setAttribute("aria-pressed", item.one === one ? "true" : "false");
    const names = receiverNames();
    const box = make("select", { "aria-label": "Receiver to ask about" }, ...names.map((n) => make("option", { value: n, text: n })));
    const answer = make("pre", { hidden: true, "aria-live": "polite", id: "why" });
    const id = one.header.offset !== null ? `${one.header.partition}:${one.header.offset}` : one.event === undefined ? one.id : JSON.stringify(one.event);
    const button = make("button", { type: "button", class: "primary", text: "Why?", onclick: async () => {
      answer.hidden = false;
      put(answer, "asking");
      try {
        const why = await ask("/api/why", { channel: name, event: id, receiver: box.value });
        const values = Object.entries(why.values).map(([key, value]) => `    ${key} = ${value}`);
        put(answer, [`${why.receiver}${why.station ? ` in ${why.station}` : ""}: ${why.verdict}`, `${why.stage}: ${why.rule}`, ...values, ...why.steps.map((s) => `before that: ${s}`), why.remedy && `try: ${why.remedy}`].filter(Boolean).join("\n"));
      } catch (error) { put(answer, error.message); }
    } });
    const header = make("dl", {});
    for (const [key, value] of Object.entries(one.header)) {
      if (value === null || value === undefined) continue;
      header.append(make("dt", { text: key }), make("dd", { text: typeof value === "object" ? JSON.stringify(value) : String(value) }));
    }
    detail.replaceChildren(
      make("div", { class: "row" }, make("h3", { text: `Event ${one.id}` }), make("button", { type: "button", text: "Close", onclick: () => { detail.hidden = true; } })),
      make("div", { class: "grid" }, make("pre", { text: one.event === undefined ? text(one) : JSON.stringify(one.event, null, 2) }), header),
      make("div", { class: "row" }, names.length ? make("label", { text: "Why did it reach, or not reach, " }, box) : null, names.length ? button : make("span", { class: "quiet", text: "nobody receives this channel" })), answer);
    detail.hidden = false;
    detail.scrollIntoView({ block: "nearest" });
  }

  function toggle() {
    paused = !paused;
    if (!paused) skipped = 0;
    put(pause, paused ? "Go on" : "Pause");
  }

  let timer = null;
  where.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(async () => { if (await check()) start(); }, 250); });
  const element = make("section", { class: "panel", "aria-label": "Live tail" },
    make("div", { class: "row" }, make("h3", { text: "Live tail" }), where, pause, note), problem, travel, list, detail, latency,
    make("h3", { text: "Plot numeric fields" }), fields, plotHolder);
  extent().then(start);
  const every = setInterval(extent, 5000);
  return { element, toggle, stop: () => { source?.close(); clearInterval(every); clearTimeout(timer); plot?.destroy(); } };
}

// ---- routes, samples, keys, theme

const VIEWS = { "": ["channels", channelsView], graph: ["graph", graphView], journal: ["journal", journalView], stations: ["stations", stationsView], problems: ["problems", problemsView] };

function route() {
  const [, first = "", ...rest] = location.hash.split("/");
  state.view?.stop?.();
  const [name, build] = first === "channel" ? ["channels", () => channelView(decodeURIComponent(rest.join("/")))] : VIEWS[first] || VIEWS[""];
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === name) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  state.view = build();
  state.view.draw();
  scrollTo(0, 0);
}

function samples() {
  const source = new EventSource("/api/stream");
  const status = document.getElementById("status");
  source.addEventListener("overview", (message) => {
    state.overview = JSON.parse(message.data);
    const here = state.overview.stations[0];
    put(document.getElementById("about"), here ? `${here.name || here.id}${here.domain ? ` · domain ${here.domain}` : ""} · ${state.overview.stations.length} station${state.overview.stations.length === 1 ? "" : "s"}` : "");
    const found = problems().length, badge = document.getElementById("problem-count");
    badge.hidden = !found;
    put(badge, String(found));
    badge.setAttribute("aria-label", `${found} problems`);
    put(status, "live");
    status.className = "good";
    if (!document.hidden) state.view.draw();
  });
  source.onerror = () => { put(status, source.readyState === EventSource.CLOSED ? "ended: open the link again" : "connection lost, trying again"); status.className = "bad"; };
}

const dark = () => (document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
function theme() {
  document.documentElement.dataset.theme = dark() ? "light" : "dark";
  try { localStorage.setItem("theme", document.documentElement.dataset.theme); } catch { /* not kept */ }
  route();
}
try { const kept = localStorage.getItem("theme"); if (kept) document.documentElement.dataset.theme = kept; } catch { /* none */ }
document.getElementById("theme").addEventListener("click", theme);
document.getElementById("help").addEventListener("click", () => document.getElementById("keys").showModal());

const GO = { c: "#/", g: "#/graph", l: "#/journal", s: "#/stations", p: "#/problems" };
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) { if (event.key === "Escape") event.target.blur(); return; }
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "/") { event.preventDefault(); (document.getElementById("where") || document.getElementById("filter"))?.focus(); }
  else if (event.key === "?") document.getElementById("keys").showModal();
  else if (event.key === "t") theme();
  else if (event.key === "Escape" && location.hash.startsWith("#/channel/")) location.hash = "#/";
  else if (event.key === " " && state.view?.toggle && event.target.tagName !== "BUTTON") { event.preventDefault(); state.view.toggle(); }
  else if (event.key === "j" || event.key === "k") {
    const rows = [...main.querySelectorAll("tr.pick, .tail button")];
    const at = rows.indexOf(document.activeElement);
    rows[Math.max(0, Math.min(rows.length - 1, at + (event.key === "j" ? 1 : -1)))]?.focus();
  } else if (GO[event.key]) location.hash = GO[event.key];
});
addEventListener("hashchange", route);
addEventListener("visibilitychange", () => { if (!document.hidden) state.view.draw(); });
route();
samples();
