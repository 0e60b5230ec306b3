/* What the page knows: decoding the data of a report, and selecting from it. */

const report = JSON.parse(byId("data").textContent);
const metricOf = new Map(report.metrics.map((metric) => [metric.name, metric]));

/** Return [mean, low, high] of a metric of an experiment, in the unit that people read; nulls where there is none. */
function valueOf(sweep, operation, name, experiment) {
  const table = sweep.values[operation]?.[name];
  const factor = metricOf.get(name).factor;
  return [0, 1, 2].map((end) => {
    const value = table?.[end]?.[experiment] ?? null;
    return value === null ? null : value * factor;
  });
}

/** Return what the model allows a metric of an experiment at most; null where it does not say. */
function boundOf(sweep, operation, name, experiment) {
  const bound = operation === "all" ? sweep.bounds[name]?.[experiment] ?? null : null;
  return bound === null ? null : bound * metricOf.get(name).factor;
}

/** Whether fewer than half of the finished transactions of an experiment committed. */
function isLow(sweep, operation, experiment) {
  const success = sweep.values[operation]?.success_rate?.[0]?.[experiment] ?? null;
  return success !== null && success < 0.5;
}

/** Return the experiments that have the chosen levels, in the order of the axes. */
function experimentsAt(sweep, levels) {
  const found = [];
  for (let experiment = 0; experiment < sweep.hashes.length; experiment += 1) {
    if (Object.entries(levels).every(([axis, level]) => sweep.levels[axis][experiment] === Number(level))) found.push(experiment);
  }
  return found;
}

/** Return where a level of an axis stands on a scale: its number, or its place. */
function placeOf(axis, level) {
  return axis.isNumber ? axis.values[level] : level;
}

/** Return an experiment in words. */
function phrase(sweep, experiment) {
  return sweep.axes.map((axis, place) => axis.phrases[sweep.levels[place][experiment]]).join(", ");
}

/** Return curves: a name, a level, and points {x, y, low, high, left, right, isLow, experiment} each. */
function curves(sweep, choice) {
  const along = choice.x.axis ?? choice.along;
  const series = choice.series;
  const kinds = series === "operation" ? sweep.operations.filter((each) => each !== "all") : null;
  const levels = kinds ?? (series === null ? [0] : sweep.axes[series].texts.map((_, place) => place));
  return levels.map((level, place) => {
    const operation = kinds ? level : choice.operation;
    const at = { ...choice.filters };
    if (!kinds && series !== null) at[series] = level;
    const points = experimentsAt(sweep, at)
      .map((experiment) => point(sweep, operation, choice, along, experiment))
      .filter((each) => each !== null)
      .sort((one, other) => one.order - other.order);
    const name = kinds ? sweep.operationTitles[sweep.operations.indexOf(level)] : series === null ? "" : sweep.axes[series].texts[level];
    return { name, place, points };
  });
}

function point(sweep, operation, choice, along, experiment) {
  const [y, low, high] = valueOf(sweep, operation, choice.y, experiment);
  if (y === null) return null;
  const order = along === null ? 0 : sweep.levels[along][experiment];
  const made = { y, low, high, order, experiment, operation, isLow: isLow(sweep, operation, experiment), left: null, right: null, bound: boundOf(sweep, operation, choice.y, experiment) };
  if (choice.x.axis !== undefined) {
    made.x = choice.x.axis === null ? 0 : placeOf(sweep.axes[choice.x.axis], order);
  } else {
    [made.x, made.left, made.right] = valueOf(sweep, operation, choice.x.metric, experiment);
    if (made.x === null) return null;
  }
  return made;
}
