/* The rest of the page: theme, sweeps, findings, tables, configuration, provenance. */

const TABLE_METRICS = ["offered_per_s", "throughput_per_s", "success_rate", "in_flight_share", "retries_per_commit", "commit_latency_p50_ms", "commit_latency_p95_ms", "commit_latency_p99_ms", "overhead_share"];
const FEW_ROWS = 50;

let tableOperation = "all";
let showsAll = false;

/** Fill a table that sorts by the column whose title is pressed. Cells are {text, key, isLow}. */
function sortable(table, columns, rows, most = Infinity, order = { column: 0, isDown: false }) {
  const sorted = [...rows].sort((one, other) => compare(one[order.column].key, other[order.column].key) * (order.isDown ? -1 : 1));
  const head = columns.map((column, place) => {
    const button = element("button", { type: "button" }, column.title);
    button.addEventListener("click", () => {
      sortable(table, columns, rows, most, { column: place, isDown: place === order.column && !order.isDown });
      table.querySelectorAll("th button")[place].focus();
    });
    const sort = place === order.column ? (order.isDown ? "descending" : "ascending") : "none";
    return element("th", { scope: "col", class: column.isWord ? "word" : null, "aria-sort": sort }, button);
  });
  const body = sorted.slice(0, most).map((row) => element("tr", {}, ...row.map((cell, place) => tableCell(cell, columns[place]))));
  table.replaceChildren(element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body));
}

function tableCell(cell, column) {
  const made = element("td", { class: column.isWord ? "word" : cell.isLow ? "low" : null }, cell.text);
  if (cell.interval) made.append(" ", element("small", {}, cell.interval));
  return made;
}

/** What has no value comes last. */
function compare(one, other) {
  if (one === null || other === null) return (one === null) - (other === null);
  return typeof one === "string" ? one.localeCompare(other) : one - other;
}

function buildTable() {
  const metrics = TABLE_METRICS.filter((name) => sweep.metrics.includes(name)).map((name) => metricOf.get(name));
  const columns = [...sweep.axes.map((axis) => ({ title: axis.label, isWord: !axis.isNumber })), { title: "seeds" }, ...metrics.map((metric) => ({ title: metric.label }))];
  const rows = [];
  for (let experiment = 0; experiment < sweep.hashes.length; experiment += 1) {
    if (sweep.seedCounts[tableOperation][experiment] === null) continue;
    const low = isLow(sweep, tableOperation, experiment);
    rows.push([
      ...sweep.axes.map((axis, place) => levelCell(axis, sweep.levels[place][experiment])),
      { text: String(sweep.seedCounts[tableOperation][experiment]), key: sweep.seedCounts[tableOperation][experiment] },
      ...metrics.map((metric) => metricCell(metric.name, experiment, low)),
    ]);
  }
  sortable(byId("table"), columns, rows, showsAll ? Infinity : FEW_ROWS);
  byId("more").hidden = showsAll || rows.length <= FEW_ROWS;
  byId("more").textContent = `Show all ${rows.length.toLocaleString("en-US")}`;
  byId("table-note").textContent = `${rows.length.toLocaleString("en-US")} experiments. ${sweep.hasIntervals ? "In brackets: 95 % intervals over seeds." : ONE_SEED} Italic: fewer than half of the finished transactions committed. Press a title to sort.`;
  byId("table-controls").replaceChildren();
  if (sweep.operations.length > 2) {
    const select = element("select", { id: "table-operation" }, ...sweep.operations.map((operation, place) => element("option", { value: operation, selected: operation === tableOperation }, sweep.operationTitles[place])));
    select.addEventListener("change", () => {
      tableOperation = select.value;
      buildTable();
      byId("table-operation").focus();
    });
    byId("table-controls").append(element("label", { for: "table-operation" }, "Operations", select));
  }
}

/** Numbers sort as numbers, words as they are read. */
function levelCell(axis, level) {
  return { text: axis.texts[level], key: axis.isNumber ? axis.values[level] : axis.texts[level] };
}

function metricCell(name, experiment, low) {
  const [mean, from, to] = valueOf(sweep, tableOperation, name, experiment);
  return { text: number(mean), interval: from === null ? "" : `(${number(from)} to ${number(to)})`, key: mean, isLow: low };
}

function buildSaturation() {
  byId("saturation").hidden = sweep.saturation === null;
  if (sweep.saturation === null) return;
  byId("saturation-note").textContent = sweep.saturation.note;
  sortable(byId("saturation-table"), sweep.saturation.columns, sweep.saturation.rows.map((row) => row.map(([text, key]) => ({ text, key }))));
}

function buildText() {
  byId("description").textContent = sweep.description;
  byId("axes").replaceChildren(...sweep.axes.flatMap((axis) => [element("dt", {}, axis.label), element("dd", {}, axis.range, " ", element("small", { class: "note" }, axis.keys))]));
  const items = (isWarning) => sweep.findings.filter((finding) => finding.isWarning === isWarning).map((finding) => element("li", {}, finding.text));
  byId("finding-list").replaceChildren(...items(false));
  byId("warning-list").replaceChildren(...items(true));
  byId("settings").textContent = sweep.settings.join("\n");
  byId("figure-list").replaceChildren(...sweep.figures.map((figure) => element("li", {}, `${figure.title}: `, ...links(figure.name))));
  byId("provenance").replaceChildren(...sweep.provenance.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
}

function links(name) {
  const files = [["PNG", `figures/${name}.png`], ["SVG", `figures/${name}.svg`], ["table", `tables/${name}.md`], ["CSV", `tables/${name}.csv`]];
  return files.flatMap(([text, href], place) => [place ? ", " : "", element("a", { href }, text)]);
}

/** The table of hashes is long, and made when it is opened. */
function buildHashes() {
  const table = byId("hashes");
  if (!table.closest("details").open) return;
  const columns = [...sweep.axes.map((axis) => ({ title: axis.label, isWord: !axis.isNumber })), { title: "hash", isWord: true }, { title: "seeds", isWord: true }];
  const rows = sweep.hashes.map((hash, experiment) => [
    ...sweep.axes.map((axis, place) => levelCell(axis, sweep.levels[place][experiment])),
    { text: hash, key: hash },
    { text: sweep.seedSets[sweep.seedSet[experiment]], key: sweep.seedSet[experiment] },
  ]);
  sortable(table, columns, rows);
}

function choose(place) {
  sweep = report.sweeps[place];
  state = firstState(sweep);
  tableOperation = "all";
  showsAll = false;
  buildSweeps(place);
  buildText();
  buildSaturation();
  buildTable();
  buildHashes();
  update();
}

function buildSweeps(chosen) {
  byId("sweeps").replaceChildren(...(report.sweeps.length < 2 ? [] : report.sweeps).map((each, place) => {
    const button = element("button", { type: "button", "aria-pressed": String(place === chosen) }, each.name);
    button.addEventListener("click", () => {
      choose(place);
      byId("sweeps").children[place].focus();
    });
    return button;
  }));
}

function setTheme(isDark) {
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
  byId("theme").setAttribute("aria-pressed", String(isDark));
}

const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
let themeChosen = false;
setTheme(prefersDark.matches);
prefersDark.addEventListener("change", () => { if (!themeChosen) setTheme(prefersDark.matches); });
byId("theme").addEventListener("click", () => {
  themeChosen = true;
  setTheme(document.documentElement.dataset.theme !== "dark");
});
window.addEventListener("beforeprint", () => { setTheme(false); });
window.addEventListener("afterprint", () => { setTheme(themeChosen ? byId("theme").getAttribute("aria-pressed") === "true" : prefersDark.matches); });
byId("more").addEventListener("click", () => {
  showsAll = true;
  buildTable();
});
byId("hashes").closest("details").addEventListener("toggle", buildHashes);
choose(0);
listen();
