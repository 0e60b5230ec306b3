/* What a reader's eye would notice, measured in the page: texts too small or too faint, or that touch in a chart. */

const shown = [...document.querySelectorAll("body *:not(script):not(style):not(option)")].filter(
  (node) => node.getClientRects().length && [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim()),
);
const channels = (text) => (text.match(/[\d.]+/g) ?? []).map(Number);
const share = (channel) => (channel <= 0.04045 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4);

/** Relative luminance, as the Web Content Accessibility Guidelines define it. */
function luminance(color) {
  const [red, green, blue] = color.map((each) => share(each / 255));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function over([red, green, blue, alpha = 1], back) {
  return [red, green, blue].map((each, place) => each * alpha + back[place] * (1 - alpha));
}

function behind(node) {
  if (!node) return [255, 255, 255];
  return over(channels(getComputedStyle(node).backgroundColor), behind(node.parentElement));
}

/** The color behind a text: of the cell of a heatmap that its middle lies in, else of the elements around it. */
function backOf(node) {
  const chart = node.closest("svg");
  if (!chart) return behind(node);
  const { left, top, width, height } = node.getBoundingClientRect();
  const x = left + width / 2, y = top + height / 2;
  const cell = [...chart.querySelectorAll("rect.cell")].find((each) => {
    const box = each.getBoundingClientRect();
    return x > box.left && x < box.right && y > box.top && y < box.bottom;
  });
  return cell ? channels(getComputedStyle(cell).fill) : behind(chart.parentElement);
}

function opacityOf(node) {
  return node ? Number(getComputedStyle(node).opacity) * opacityOf(node.parentElement) : 1;
}

function contrastOf(node) {
  const style = getComputedStyle(node), back = backOf(node);
  const [red, green, blue, alpha = 1] = channels(node.closest("svg") ? style.fill : style.color);
  const seen = over([red, green, blue, alpha * opacityOf(node)], back);
  const [low, high] = [luminance(seen), luminance(back)].sort((one, other) => one - other);
  return (high + 0.05) / (low + 0.05);
}

function touching() {
  const boxes = [...document.querySelectorAll("#chart svg text")].map((each) => [each.textContent, each.getBoundingClientRect()]);
  const touch = (one, other) => one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom;
  return boxes.flatMap(([text, box], place) => boxes.slice(place + 1).filter(([, other]) => touch(box, other)).map(([other]) => [text, other]));
}

const name = (node) => node.textContent.slice(0, 60);
return {
  overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  small: shown.filter((node) => parseFloat(getComputedStyle(node).fontSize) < 11).map(name),
  faint: shown.filter((node) => !node.closest(".visually-hidden, .skip") && contrastOf(node) < 4.5).map((node) => [name(node), contrastOf(node)]),
  touching: touching(),
};
