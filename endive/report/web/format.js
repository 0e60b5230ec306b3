/* Numbers, ticks and elements: what every other part needs. */

/** A number with three significant digits, thousands apart; a dash where there is none. */
function number(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const decimals = Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(value))));
  const text = value.toLocaleString("en-US", { minimumFractionDigits: Math.min(decimals, 20), maximumFractionDigits: Math.min(decimals, 20) });
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/** A mean with its interval, where it has one. */
function withInterval(mean, low, high) {
  return low === null || high === null ? number(mean) : `${number(mean)} (${number(low)} to ${number(high)})`;
}

/** Return round ticks from low to high, linear or logarithmic. */
function ticks(low, high, isLog, most = 7) {
  return isLog ? logTicks(low, high, most) : linearTicks(low, high, most);
}

function linearTicks(low, high, most) {
  const raw = (high - low) / most || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= raw * 0.999);
  const found = [];
  for (let place = Math.ceil(low / step - 1e-9); place * step <= high * (1 + 1e-9); place += 1) found.push(place * step);
  return found;
}

function logTicks(low, high, most) {
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  let found = [];
  for (const steps of [[1, 2, 5], [1, 3], [1]]) {
    found = [];
    for (let decade = first; decade <= last; decade += 1) {
      for (const step of steps) {
        const tick = step * 10 ** decade;
        if (tick >= low * 0.999 && tick <= high * 1.001) found.push(tick);
      }
    }
    if (found.length <= most) break;
  }
  return found.length > 1 ? found : [low, high];
}

/** Return an HTML element with attributes and children; texts are only ever texts. */
function element(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** The same for SVG. */
function shape(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

const byId = (id) => document.getElementById(id);
