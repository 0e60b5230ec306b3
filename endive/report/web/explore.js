/* The part of the page that is explored: kinds of charts, what can be chosen for each, and how they answer. */

const VIEWS = { curves: "Curves", heatmap: "Heatmap", breakdown: "Where time goes", time: "Over time" };
const BOUND = "Dashed, where near: what the round trips of typical attempts allow.";
const HOLLOW = "Hollow points: fewer than half of the finished transactions committed.";

let sweep = report.sweeps[0];
let state = {};
let targets = [];
let current = -1;

/** Return what a sweep is first seen with. */
function firstState(of) {
  const x = of.x, series = of.series;
  return { view: "curves", y: "throughput_per_s", x: x === null ? "m:throughput_per_s" : `a:${x}`, series: series === null ? "none" : `a:${series}`, operation: "all", cellX: x ?? 0, cellY: series ?? (of.axes.length > 1 ? 1 : 0), metric: "success_rate", over: "committed", isLogY: null, filters: Object.fromEntries(of.axes.map((axis, place) => [place, axis.reference])), hidden: new Set() };
}

const axisOf = (choice) => (choice.startsWith("a:") ? Number(choice.slice(2)) : null);

/** Return the axes that the view shows, so that they need no level. */
function shownAxes() {
  if (state.view === "heatmap") return [state.cellX, state.cellY];
  if (state.view === "breakdown") return [sweep.x];
  const x = axisOf(state.x) ?? sweep.x;
  return [state.view === "time" ? null : x, axisOf(state.series)].filter((axis) => axis !== null);
}

function levelsHeld() {
  const shown = shownAxes();
  return Object.fromEntries(Object.entries(state.filters).filter(([axis]) => !shown.includes(Number(axis))));
}

/* Controls */

function choice(label, id, options, chosen, onChange) {
  const select = element("select", { id });
  for (const { value, text } of options) select.append(element("option", { value, selected: String(value) === String(chosen) }, text));
  select.addEventListener("change", () => {
    onChange(select.value);
    update();
    byId(id)?.focus();
  });
  return element("label", { for: id }, label, select);
}

function check(label, id, isOn, onChange) {
  const box = element("input", { type: "checkbox", id, checked: isOn });
  box.addEventListener("change", () => {
    onChange(box.checked);
    update();
    byId(id)?.focus();
  });
  return element("label", { for: id, class: "check" }, box, label);
}

const metricOptions = () => report.metrics.filter((metric) => sweep.metrics.includes(metric.name)).map((metric) => ({ value: metric.name, text: metric.label }));
const axisOptions = () => sweep.axes.map((axis, place) => ({ value: place, text: axis.label }));
const operationOptions = () => sweep.operations.map((operation, place) => ({ value: operation, text: sweep.operationTitles[place] }));

function buildViews() {
  const possible = Object.keys(VIEWS).filter((view) => (view === "heatmap" ? sweep.axes.length > 1 : view === "breakdown" ? sweep.x !== null : view === "time" ? sweep.time !== null : true));
  byId("views").replaceChildren(...possible.map((view) => {
    const button = element("button", { type: "button", id: `view-${view}`, "aria-pressed": String(state.view === view) }, VIEWS[view]);
    button.addEventListener("click", () => {
      Object.assign(state, { view, hidden: new Set(), isLogY: null });
      update();
      byId(`view-${view}`).focus();
    });
    return button;
  }));
}

function buildControls() {
  const made = [];
  const series = [{ value: "none", text: "nothing" }, ...axisOptions().map(({ value, text }) => ({ value: `a:${value}`, text })), ...(sweep.operations.length > 2 && state.view === "curves" ? [{ value: "operation", text: "operation type" }] : [])];
  const setSeries = (value) => Object.assign(state, { series: value, hidden: new Set() });
  if (state.view === "curves") {
    const across = [...axisOptions().map(({ value, text }) => ({ value: `a:${value}`, text })), ...metricOptions().map(({ value, text }) => ({ value: `m:${value}`, text }))];
    made.push(choice("Up", "control-y", metricOptions(), state.y, (value) => Object.assign(state, { y: value, isLogY: null })));
    made.push(choice("Across", "control-x", across, state.x, (value) => { state.x = value; }));
    made.push(choice("Curves for", "control-series", series.filter(({ value }) => value !== state.x), state.series, setSeries));
    made.push(check("log scale", "control-log", isLogY(), (value) => { state.isLogY = value; }));
  } else if (state.view === "heatmap") {
    made.push(choice("Color", "control-metric", metricOptions(), state.metric, (value) => { state.metric = value; }));
    made.push(choice("Across", "control-cell-x", axisOptions(), state.cellX, (value) => swapCells("cellX", "cellY", Number(value))));
    made.push(choice("Up", "control-cell-y", axisOptions(), state.cellY, (value) => swapCells("cellY", "cellX", Number(value))));
  } else if (state.view === "time") {
    made.push(choice("Up", "control-over", [{ value: "committed", text: "commits per second" }, { value: "inFlight", text: "transactions in flight" }], state.over, (value) => { state.over = value; }));
    made.push(choice("Curves for", "control-series", series, state.series, setSeries));
  }
  if (sweep.operations.length > 2 && state.view !== "time" && !(state.view === "curves" && state.series === "operation")) {
    made.push(choice("Operations", "control-operation", operationOptions(), state.operation, (value) => { state.operation = value; }));
  }
  byId("controls").replaceChildren(...made);
  byId("filters").replaceChildren(...Object.keys(levelsHeld()).map((place) => {
    const axis = sweep.axes[place];
    const options = axis.texts.map((text, level) => ({ value: level, text }));
    return choice(axis.label, `filter-${place}`, options, state.filters[place], (value) => { state.filters[place] = Number(value); });
  }));
}

function swapCells(changed, other, value) {
  if (state[other] === value) state[other] = state[changed];
  state[changed] = value;
}

/* Charts */

function isLogY() {
  if (state.isLogY !== null) return state.isLogY;
  if (!metricOf.get(state.y).isLog) return false;
  const values = shownCurves().flatMap((line) => line.points.map((each) => each.y)).filter((value) => value > 0);
  return values.length > 0 && Math.max(...values) > 5 * Math.min(...values);
}

function shownCurves() {
  const axis = axisOf(state.x);
  return curves(sweep, { x: axis === null && state.x.startsWith("m:") ? { metric: state.x.slice(2) } : { axis }, along: sweep.x, y: state.y, series: state.series === "operation" ? "operation" : axisOf(state.series), operation: state.operation, filters: levelsHeld() });
}

function frameFor(labels, height) {
  const width = Math.max(280, byId("chart").clientWidth);
  const left = Math.min(width * 0.4, 18 + 7.2 * Math.max(...labels.map((text) => text.length)));
  return makeFrame(width, height ?? Math.min(460, Math.max(300, width * 0.52)), { left, right: 16, top: 30, bottom: 50 });
}

function curvesChart() {
  const lines = shownCurves();
  const axis = axisOf(state.x), along = axis ?? sweep.x;
  const y = metricOf.get(state.y);
  const x = axis === null ? metricOf.get(state.x.slice(2)) : sweep.axes[axis];
  const visible = lines.filter((line) => !state.hidden.has(line.name) && line.points.length);
  const values = visible.flatMap((line) => line.points.map((each) => each.x)).filter((value) => value > 0);
  const hasBounds = axis !== null && x.isNumber && visible.some((line) => line.points.some((each) => each.bound !== null));
  const frame = frameFor(["100,000"]);
  const found = drawCurves(frame, visible, {
    isLogX: axis === null ? x.isLog && Math.max(...values) > 20 * Math.min(...values) : x.isLog,
    isLogY: isLogY(), isAxis: axis !== null, hasBounds, isJoined: along !== null && sweep.axes[along].isNumber,
    labelX: x.label, labelY: y.label, top: y.unit === "%" && !isLogY() ? 100 : undefined,
    marks: axis === null ? undefined : x.texts.map((text, level) => ({ at: placeOf(x, level), text })),
  });
  const said = visible.some((line) => line.points.some((each) => each.isLow)) ? HOLLOW : "";
  return { frame, found, legend: lines, caption: `${intervalNote(axis !== null && x.isNumber)} ${hasBounds ? BOUND : ""} ${said}`, tell: tellPoint };
}

const ONE_SEED = "One seed: no intervals.";
const intervalNote = (isBand) => (sweep.hasIntervals ? `${isBand ? "Bands" : "Bars"}: 95 % confidence intervals of the mean over seeds.` : ONE_SEED);
const meansNote = () => (sweep.hasIntervals ? "Means over seeds." : ONE_SEED);

function tellPoint({ line, point: each }) {
  const y = metricOf.get(state.y), lines = [`${y.label}: ${withInterval(each.y, each.low, each.high)}`];
  if (state.x.startsWith("m:")) lines.push(`${metricOf.get(state.x.slice(2)).label}: ${withInterval(each.x, each.left, each.right)}`);
  if (each.bound !== null) lines.push(`typical attempts allow: ${number(each.bound)}`);
  if (state.y !== "success_rate") lines.push(`committed of finished: ${number(valueOf(sweep, each.operation, "success_rate", each.experiment)[0])} %`);
  return [[state.series === "operation" ? line.name : "", phrase(sweep, each.experiment)].filter(Boolean).join(", "), ...lines];
}

function heatmapChart() {
  const [across, up] = [sweep.axes[state.cellX], sweep.axes[state.cellY]];
  const metric = metricOf.get(state.metric);
  const cells = experimentsAt(sweep, levelsHeld()).map((experiment) => {
    const [value, low, high] = valueOf(sweep, state.operation, state.metric, experiment);
    return { column: sweep.levels[state.cellX][experiment], row: sweep.levels[state.cellY][experiment], value, low, high, experiment, isLow: isLow(sweep, state.operation, experiment) };
  });
  const values = cells.map((cell) => cell.value).filter((value) => value > 0);
  const frame = frameFor(up.texts, 90 + Math.max(4, up.texts.length) * 34);
  const found = drawHeatmap(frame, cells, across, up, { isLog: metric.isLog && Math.max(...values) > 10 * Math.min(...values), range: metric.unit === "%" ? [0, 100] : undefined });
  const said = cells.some((cell) => cell.isLow) ? "Hatched: fewer than half of the finished transactions committed." : "";
  return { frame, found, legend: [], caption: `${metric.label}. ${meansNote()} ${said}`, tell: ({ cell }) => [phrase(sweep, cell.experiment), `${metric.label}: ${withInterval(cell.value, cell.low, cell.high)}`] };
}

function breakdownChart() {
  const axis = sweep.axes[sweep.x];
  const columns = experimentsAt(sweep, levelsHeld()).map((experiment) => ({ experiment, text: axis.texts[sweep.levels[sweep.x][experiment]], order: sweep.levels[sweep.x][experiment], parts: report.components.map(({ metric }) => valueOf(sweep, state.operation, metric, experiment)[0]) }));
  columns.sort((one, other) => one.order - other.order);
  const used = report.components.map((component, kind) => ({ name: component.title, place: kind, points: columns.filter((column) => column.parts[kind] > 0) })).filter((line) => line.points.length);
  const hidden = new Set(used.filter((line) => state.hidden.has(line.name)).map((line) => line.place));
  const frame = frameFor(["100,000"]);
  const found = columns.length ? drawBars(frame, columns, report.components, { labelX: axis.label, labelY: "seconds per commit", hidden }) : null;
  const tell = ({ column, kind }) => [phrase(sweep, column.experiment), `${report.components[kind].title}: ${number(column.parts[kind])} s`, `all: ${number(column.parts.reduce((sum, part) => sum + (part ?? 0), 0))} s`, `committed of finished: ${number(valueOf(sweep, state.operation, "success_rate", column.experiment)[0])} %`];
  return { frame, found, legend: used, isBars: true, caption: `Mean time of a committed transaction's commit, by what it was spent on. ${meansNote()}`, tell };
}

function timeChart() {
  const series = axisOf(state.series);
  const { binS, windowMin, endMin } = sweep.time;
  const lines = experimentsAt(sweep, levelsHeld()).map((experiment) => {
    const level = series === null ? 0 : sweep.levels[series][experiment];
    const values = sweep.time[state.over][experiment] ?? [];
    const points = values.map((y, bin) => ({ x: ((bin + 0.5) * binS) / 60, y, low: null, high: null, left: null, right: null, isLow: false, experiment }));
    return { name: series === null ? phrase(sweep, experiment) : sweep.axes[series].texts[level], place: level, points };
  }).sort((one, other) => one.place - other.place);
  const frame = frameFor(["100,000"]);
  const title = state.over === "committed" ? "commits per second" : "transactions in flight";
  const found = drawCurves(frame, lines.filter((line) => !state.hidden.has(line.name) && line.points.length), { isLogX: false, isLogY: false, isAxis: true, isJoined: true, hasNoMarks: true, rangeX: [0, endMin], shaded: [[0, windowMin[0]], [windowMin[1], endMin]], labelX: "simulated time (min)", labelY: title });
  const tell = ({ line, point: each }) => [line.name, `${title}: ${number(each.y)}`, `at minute ${number(each.x)}`];
  return { frame, found, legend: lines, caption: `${meansNote()} Shaded: warm-up and cool-down, outside the steady window.`, tell };
}

const CHARTS = { curves: curvesChart, heatmap: heatmapChart, breakdown: breakdownChart, time: timeChart };

function draw() {
  const { frame, found, legend, caption, tell, isBars } = CHARTS[state.view]();
  const chart = byId("chart");
  hideTooltip();
  targets = (found ?? []).map((target) => ({ ...target, tell }));
  current = -1;
  chart.replaceChildren(found ? frame.svg : element("p", { class: "empty" }, "Nothing to show here: no experiment has a value."));
  chart.setAttribute("aria-label", `${VIEWS[state.view]}. Left and right arrow keys read the values.`);
  const held = Object.entries(levelsHeld()).map(([axis, level]) => sweep.axes[axis].phrases[level]).join(", ");
  byId("caption").textContent = `${caption}${held ? ` Held at: ${held}.` : ""}`;
  buildLegend(legend, isBars);
}

function buildLegend(lines, isBars) {
  const named = lines.filter((line) => line.name);
  const series = axisOf(state.series);
  const title = isBars || series === null ? "" : sweep.axes[series].label;
  byId("legend").replaceChildren(...(named.length > 1 && title ? [element("span", {}, title)] : []), ...(named.length < 2 && !isBars ? [] : named).map((line) => {
    const isShown = !state.hidden.has(line.name);
    const sample = shape("svg", { width: 18, height: 14, "aria-hidden": "true" }, isBars ? shape("rect", { x: 3, y: 1, width: 12, height: 12, fill: seriesColor(line.place) }) : marker(state.view === "time" ? "square" : MARKS[line.place % 8], 9, 7, seriesColor(line.place), false));
    const button = element("button", { type: "button", "aria-pressed": String(isShown), "data-name": line.name }, sample, line.name);
    button.addEventListener("click", () => {
      if (isShown) state.hidden.add(line.name);
      else state.hidden.delete(line.name);
      draw();
      [...byId("legend").querySelectorAll("button")].find((each) => each.dataset.name === line.name)?.focus();
    });
    return button;
  }));
}

function update() {
  const x = axisOf(state.x);
  if (x !== null && axisOf(state.series) === x && state.view === "curves") state.series = "none";
  buildViews();
  buildControls();
  draw();
}

/* Reading values: by pointer, and by arrow keys */

function nearest(x, y) {
  let best = -1, least = Infinity;
  targets.forEach((target, place) => {
    if (target.box) {
      const [left, top, right, bottom] = target.box;
      if (x >= left && x <= right && y >= top && y <= bottom) [best, least] = [place, -1];
    } else {
      const distance = Math.hypot(target.x - x, target.y - y);
      if (distance < least && distance < 60) [best, least] = [place, distance];
    }
  });
  return best;
}

function showTooltip(place) {
  const target = targets[place];
  if (!target) return hideTooltip();
  current = place;
  const [title, ...lines] = target.tell(target);
  const tooltip = byId("tooltip");
  tooltip.replaceChildren(...(title ? [element("b", {}, title)] : []), ...lines.map((line) => element("div", {}, line)));
  tooltip.hidden = false;
  const svg = byId("chart").querySelector("svg"), box = svg.getBoundingClientRect();
  svg.querySelector(".ring")?.remove();
  if (!target.box) svg.append(shape("circle", { class: "ring", cx: target.x, cy: target.y, r: 8 }));
  const left = Math.min(box.left + target.x + 14, document.documentElement.clientWidth - tooltip.offsetWidth - 6);
  const top = box.top + target.y - tooltip.offsetHeight - 12;
  tooltip.style.left = `${Math.max(6, left) + window.scrollX}px`;
  tooltip.style.top = `${(top < 4 ? box.top + target.y + 16 : top) + window.scrollY}px`;
  return undefined;
}

function hideTooltip() {
  byId("tooltip").hidden = true;
  byId("chart").querySelector(".ring")?.remove();
}

function listen() {
  const chart = byId("chart");
  const point = (event) => {
    const svg = chart.querySelector("svg");
    if (!svg) return;
    const box = svg.getBoundingClientRect();
    const place = nearest(event.clientX - box.left, event.clientY - box.top);
    if (place < 0) hideTooltip();
    else showTooltip(place);
  };
  chart.addEventListener("pointermove", point);
  chart.addEventListener("pointerdown", point);
  chart.addEventListener("pointerleave", hideTooltip);
  chart.addEventListener("blur", hideTooltip);
  chart.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") hideTooltip();
    if (!step || !targets.length) return;
    event.preventDefault();
    showTooltip((current + step + targets.length) % targets.length);
    byId("reading").textContent = byId("tooltip").innerText;
  });
  let width = 0;
  new ResizeObserver(() => {
    if (chart.clientWidth === width) return;
    width = chart.clientWidth;
    draw();
  }).observe(chart);
}
