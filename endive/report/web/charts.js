/* Charts as SVG. Each function draws into a frame and returns targets: places that have something to tell. */

const MARKS = ["circle", "square", "triangle", "diamond", "nabla", "plus", "cross", "star"];
const RAMP = ["#00224e", "#35456c", "#666970", "#948e77", "#c8b866", "#fee838"];

/** Return a scale from values to pixels; null where a value has no place. */
function makeScale(values, pixels, isLog, isPadded) {
  let [low, high] = [Math.min(...values), Math.max(...values)];
  if (isLog) {
    const pad = high > low ? (high / low) ** 0.04 : 1.5;
    [low, high] = [low / pad, high * pad];
  } else if (isPadded) {
    const pad = (high - low || Math.abs(high) || 1) * 0.04;
    [low, high] = [low - pad, high + pad];
  } else {
    [low, high] = [Math.min(0, low), high > 0 ? high * 1.05 : 1];
  }
  const bend = isLog ? Math.log : (value) => value;
  const scale = (value) =>
    pixels[0] + ((bend(isLog ? Math.max(value, low) : value) - bend(low)) / (bend(high) - bend(low))) * (pixels[1] - pixels[0]);
  return Object.assign(scale, { low, high, isLog });
}

/** Return a linear scale over exactly this range. */
function straightScale([low, high], pixels) {
  return Object.assign((value) => pixels[0] + ((value - low) / (high - low)) * (pixels[1] - pixels[0]), { low, high, isLog: false });
}

/** Return an SVG of the width there is, with room for its axes. */
function makeFrame(width, height, margins) {
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" });
  const inside = { x: margins.left, y: margins.top, width: width - margins.left - margins.right, height: height - margins.top - margins.bottom };
  svg.append(shape("defs", {}, shape("clipPath", { id: "inside" }, shape("rect", inside))));
  return { svg, width, height, left: margins.left, right: width - margins.right, top: margins.top, bottom: height - margins.bottom };
}

function drawAcross(frame, scale, label, marks) {
  for (const { at, text } of marks) {
    const x = scale(at);
    frame.svg.append(
      shape("line", { class: "grid", x1: x, x2: x, y1: frame.top, y2: frame.bottom }),
      shape("text", { class: "soft", x, y: frame.bottom + 18, "text-anchor": "middle" }, text),
    );
  }
  frame.svg.append(
    shape("line", { class: "axis", x1: frame.left, x2: frame.right, y1: frame.bottom, y2: frame.bottom }),
    shape("text", { x: (frame.left + frame.right) / 2, y: frame.bottom + 40, "text-anchor": "middle" }, label),
  );
}

function drawUp(frame, scale, label) {
  for (const tick of ticks(scale.low, scale.high, scale.isLog, frame.height > 320 ? 8 : 5)) {
    const y = scale(tick);
    frame.svg.append(
      shape("line", { class: "grid", x1: frame.left, x2: frame.right, y1: y, y2: y }),
      shape("text", { class: "soft", x: frame.left - 8, y: y + 4, "text-anchor": "end" }, number(tick)),
    );
  }
  frame.svg.append(shape("text", { x: 4, y: 14 }, label));
}

/** Return as many of the marks as have room beside each other. */
function thinned(marks, scale, room = 44) {
  const kept = [];
  for (const mark of marks) {
    const width = Math.max(room, 7.2 * mark.text.length + 10);
    if (!kept.length || Math.abs(scale(mark.at) - scale(kept.at(-1).at)) >= width) kept.push(mark);
  }
  return kept;
}

function marker(kind, x, y, color, isHollow, size = 4.5) {
  const style = { fill: isHollow ? "var(--back)" : color, stroke: color, "stroke-width": 1.6 };
  const path = (corners) => shape("path", { d: `M${corners.map(([dx, dy]) => `${x + dx * size},${y + dy * size}`).join("L")}Z`, ...style });
  switch (kind) {
    case "square": return path([[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]]);
    case "triangle": return path([[0, -1.2], [1.1, 0.9], [-1.1, 0.9]]);
    case "nabla": return path([[0, 1.2], [1.1, -0.9], [-1.1, -0.9]]);
    case "diamond": return path([[0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]]);
    case "plus": return path([[-0.4, -1.2], [0.4, -1.2], [0.4, -0.4], [1.2, -0.4], [1.2, 0.4], [0.4, 0.4], [0.4, 1.2], [-0.4, 1.2], [-0.4, 0.4], [-1.2, 0.4], [-1.2, -0.4], [-0.4, -0.4]]);
    case "cross": return path([[-1.1, -0.6], [-0.6, -1.1], [0, -0.5], [0.6, -1.1], [1.1, -0.6], [0.5, 0], [1.1, 0.6], [0.6, 1.1], [0, 0.5], [-0.6, 1.1], [-1.1, 0.6], [-0.5, 0]]);
    case "star": return path(Array.from({ length: 10 }, (_, place) => {
      const angle = (place * Math.PI) / 5, radius = place % 2 ? 0.6 : 1.4;
      return [Math.sin(angle) * radius, -Math.cos(angle) * radius];
    }));
    default: return shape("circle", { cx: x, cy: y, r: size, ...style });
  }
}

const seriesColor = (place) => `var(--series-${(place % 8) + 1})`;

/** Draw curves with bands or bars; hollow points where fewer than half committed. */
function drawCurves(frame, lines, options) {
  const points = lines.flatMap((line) => line.points);
  const xs = points.map((each) => each.x).filter((value) => !options.isLogX || value > 0);
  const ys = points.flatMap((each) => [each.y, ...(options.isLogY ? [] : [each.high ?? each.y])]).filter((value) => !options.isLogY || value > 0);
  if (!xs.length || !ys.length) return null;
  const x = options.rangeX ? straightScale(options.rangeX, [frame.left, frame.right]) : makeScale(xs, [frame.left, frame.right], options.isLogX, options.isAxis);
  const y = makeScale(options.top === undefined ? ys : [...ys, options.top], [frame.bottom, frame.top], options.isLogY, false);
  const inside = (value) => Math.min(frame.bottom, Math.max(frame.top, value));
  for (const [from, to] of options.shaded ?? []) {
    frame.svg.append(shape("rect", { class: "outside", x: x(from), y: frame.top, width: Math.max(0, x(to) - x(from)), height: frame.bottom - frame.top }));
  }
  drawUp(frame, y, options.labelY);
  drawAcross(frame, x, options.labelX, thinned(options.marks ?? ticks(x.low, x.high, x.isLog, frame.width / 80).map((at) => ({ at, text: number(at) })), x));
  const targets = [];
  for (const line of lines) {
    const color = seriesColor(line.place);
    const shown = line.points.filter((each) => (!options.isLogX || each.x > 0) && (!options.isLogY || each.y > 0));
    if (options.isAxis && options.isJoined) frame.svg.append(band(shown, x, y, inside, color));
    else bars(frame, shown, x, y, inside, color);
    const bounds = shown.filter((each) => options.hasBounds && each.bound !== null);
    if (bounds.length > 1) frame.svg.append(boundLine(bounds, x, y, color));
    const path = shown.map((each, place) => `${place ? "L" : "M"}${x(each.x)},${y(each.y)}`).join("");
    if (options.isJoined) frame.svg.append(shape("path", { class: "curve", d: path || "M0,0", fill: "none", stroke: color, "stroke-width": 2 }));
    for (const each of shown) {
      if (!options.hasNoMarks) frame.svg.append(fill(marker(MARKS[line.place % 8], x(each.x), y(each.y), color, each.isLow), { class: "point" }, []));
      targets.push({ x: x(each.x), y: y(each.y), line, point: each });
    }
  }
  return targets;
}

/** Draw what the model allows, where that is within the frame. */
function boundLine(points, x, y, color) {
  const path = points.map((each, place) => `${place ? "L" : "M"}${x(each.x)},${y(each.bound)}`).join("");
  return shape("path", { class: "bound", d: path, fill: "none", stroke: color, "stroke-width": 1.4, "stroke-dasharray": "6 4", "clip-path": "url(#inside)" });
}

function band(points, x, y, inside, color) {
  const known = points.filter((each) => each.low !== null);
  const up = known.map((each) => `${x(each.x)},${inside(y(each.high))}`);
  const down = known.map((each) => `${x(each.x)},${inside(y(each.low))}`).reverse();
  return shape("polygon", { points: [...up, ...down].join(" "), fill: color, opacity: 0.18 });
}

function bars(frame, points, x, y, inside, color) {
  for (const each of points) {
    const style = { stroke: color, "stroke-width": 1.2, opacity: 0.6 };
    if (each.low !== null) frame.svg.append(shape("line", { x1: x(each.x), x2: x(each.x), y1: inside(y(each.low)), y2: inside(y(each.high)), ...style }));
    if (each.left !== null) frame.svg.append(shape("line", { x1: Math.max(frame.left, x(each.left)), x2: Math.min(frame.right, x(each.right)), y1: y(each.y), y2: y(each.y), ...style }));
  }
}

/** Draw cells of color, a number in each that has room, hatched where fewer than half committed. */
function drawHeatmap(frame, cells, across, up, options) {
  const values = cells.map((cell) => cell.value).filter((value) => value !== null && (!options.isLog || value > 0));
  if (!values.length) return null;
  const low = options.range?.[0] ?? Math.min(...values), high = options.range?.[1] ?? Math.max(...values);
  const bend = options.isLog ? Math.log : (value) => value;
  const share = (value) => (bend(high) > bend(low) ? (bend(Math.max(value, options.isLog ? low : -Infinity)) - bend(low)) / (bend(high) - bend(low)) : 0.5);
  const width = (frame.right - frame.left) / across.texts.length, height = (frame.bottom - frame.top) / up.texts.length;
  frame.svg.append(shape("defs", {}, shape("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, shape("line", { x1: 0, x2: 0, y1: 0, y2: 6, stroke: "#ffffff", "stroke-width": 1.4, opacity: 0.55 }))));
  const targets = [];
  for (const cell of cells) {
    const x = frame.left + cell.column * width, y = frame.bottom - (cell.row + 1) * height;
    const place = cell.value === null ? null : share(cell.value);
    frame.svg.append(shape("rect", { class: "cell", x, y, width: width - 1, height: height - 1, fill: place === null ? "var(--panel)" : ramp(place) }));
    if (cell.isLow) frame.svg.append(shape("rect", { x, y, width: width - 1, height: height - 1, fill: "url(#hatch)" }));
    const text = number(cell.value);
    if (width > 7 * text.length + 4) {
      const ink = place === null ? "var(--soft)" : place < 0.55 ? "#ffffff" : "#1e2226";
      frame.svg.append(shape("text", { x: x + width / 2, y: y + height / 2 + 4, "text-anchor": "middle", style: `fill: ${ink}` }, text));
    }
    targets.push({ x: x + width / 2, y: y + height / 2, box: [x, y, x + width, y + height], cell });
  }
  labelCells(frame, across, up, width, height);
  return targets;
}

function labelCells(frame, across, up, width, height) {
  const step = Math.ceil(46 / width);
  across.texts.forEach((text, place) => {
    if (place % step) return;
    frame.svg.append(shape("text", { class: "soft", x: frame.left + (place + 0.5) * width, y: frame.bottom + 18, "text-anchor": "middle" }, text));
  });
  up.texts.forEach((text, place) => {
    frame.svg.append(shape("text", { class: "soft", x: frame.left - 8, y: frame.bottom - (place + 0.5) * height + 4, "text-anchor": "end" }, text));
  });
  frame.svg.append(
    shape("text", { x: (frame.left + frame.right) / 2, y: frame.bottom + 40, "text-anchor": "middle" }, across.label),
    shape("text", { x: 4, y: 14 }, up.label),
  );
}

function ramp(share) {
  const place = Math.min(1, Math.max(0, share)) * (RAMP.length - 1);
  const from = Math.min(RAMP.length - 2, Math.floor(place));
  const mix = (at) => Math.round(parseInt(RAMP[from].slice(at, at + 2), 16) * (1 - (place - from)) + parseInt(RAMP[from + 1].slice(at, at + 2), 16) * (place - from));
  return `rgb(${mix(1)}, ${mix(3)}, ${mix(5)})`;
}

/** Draw stacked bars: of each column its parts, from the bottom up. */
function drawBars(frame, columns, titles, options) {
  const tops = columns.map((column) => column.parts.reduce((sum, part) => sum + (part ?? 0), 0));
  if (!(Math.max(...tops) > 0)) return null;
  const y = makeScale([...tops, 0], [frame.bottom, frame.top], false, false);
  drawUp(frame, y, options.labelY);
  const width = (frame.right - frame.left) / columns.length;
  const x = Object.assign((place) => frame.left + (place + 0.5) * width, {});
  const targets = [];
  columns.forEach((column, place) => {
    let bottom = 0;
    column.parts.forEach((part, kind) => {
      if (!part || options.hidden.has(kind)) return;
      const from = y(bottom), to = y(bottom + part);
      frame.svg.append(shape("rect", { class: "bar-part", x: x(place) - width * 0.4, y: to, width: width * 0.8, height: Math.max(0, from - to), fill: seriesColor(kind) }));
      bottom += part;
      targets.push({ x: x(place), y: (from + to) / 2, box: [x(place) - width * 0.5, to, x(place) + width * 0.5, from], column, kind });
    });
  });
  const step = Math.ceil(46 / width);
  columns.forEach((column, place) => {
    if (place % step === 0) frame.svg.append(shape("text", { class: "soft", x: x(place), y: frame.bottom + 18, "text-anchor": "middle" }, column.text));
  });
  frame.svg.append(
    shape("line", { class: "axis", x1: frame.left, x2: frame.right, y1: frame.bottom, y2: frame.bottom }),
    shape("text", { x: (frame.left + frame.right) / 2, y: frame.bottom + 40, "text-anchor": "middle" }, options.labelX),
  );
  return targets;
}
