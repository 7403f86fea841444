// Curves over steps as SVG, with a cursor that the pointer and the arrow keys move.

import {element} from "./elements.js";

const kHeight = 210;
const kMargin = {left: 56, right: 10, top: 8, bottom: 22};
const kMostTicks = 6;

/** "0.0123", "12,000": short, and as exact as a curve is read. */
export function numberText(value) {
  if (!Number.isFinite(value)) {
    return "-";
  }
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) {
    return value.toExponential(2).replace(/\.?0+e/, "e");
  }
  return value.toLocaleString("en", size >= 1000 ? {maximumFractionDigits: 0} : {maximumSignificantDigits: 4});
}

/** Round values from `least` to `most`, at most so many. */
export function ticksOf(least, most, isLog) {
  if (isLog) {
    const [first, last] = [Math.floor(Math.log10(least)), Math.ceil(Math.log10(most))];
    const apart = Math.ceil((last - first + 1) / kMostTicks);
    const factors = most <= 100 * least ? [1, 2, 5] : [1];
    const powers = Array.from({length: Math.floor((last - first) / apart) + 1}, (_, index) => 10 ** (first + index * apart));
    const ticks = powers.flatMap((power) => factors.map((factor) => factor * power)).filter((tick) => tick >= least && tick <= most);
    if (ticks.length > 1) {
      return ticks;
    }  // Else less than a factor of 2 or so: as without a logarithm.
  }
  const rough = (most - least) / (kMostTicks - 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const first = Math.ceil(least / step);
  return Array.from({length: Math.floor(most / step) - first + 1}, (_, index) => (first + index) * step);
}

/** The place of the point whose step is nearest. */
export function nearest(points, step) {
  let [low, high] = [0, points.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    [low, high] = points[middle][0] <= step ? [middle, high] : [low, middle];
  }
  return high > low && points[high][0] - step < step - points[low][0] ? high : low;
}

/** Of the points that fall on one column of pixels the least and the greatest: what is seen stays, and the path is short. */
function thinned(points, place) {
  const kept = [];
  for (let begin = 0; begin < points.length;) {
    const column = Math.round(place(points[begin][0]));
    let [end, low, high] = [begin, begin, begin];
    for (; end < points.length && Math.round(place(points[end][0])) === column; ++end) {
      low = points[end][1] < points[low][1] ? end : low;
      high = points[end][1] > points[high][1] ? end : high;
    }
    const chosen = [...new Set([begin, low, high, end - 1])].sort((a, b) => a - b);
    kept.push(...chosen.map((index) => points[index]));
    begin = end;
  }
  return kept;
}

export class Chart {
  #series = [];
  #options = {};
  #scale = null;  // Null: nothing is drawn.
  #cursor = null;

  /** `svg` stands in the page; its <figure> has an <output> for the values at the cursor. `moved(step)` is told where the cursor goes. */
  constructor(svg, moved) {
    this.svg = svg;
    this.moved = moved;
    this.said = svg.closest("figure").querySelector("output");
    for (const type of ["pointermove", "pointerdown"]) {
      svg.addEventListener(type, (event) => this.#point(event));
    }
    svg.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.moved(null));  // A finger leaves when it is lifted.
    svg.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.#draw()).observe(svg.parentElement);
  }

  /** Each of `series`: {name, points: [[step, value], ...] by step, kind: a class of the style sheet, hasDots}. `isLog`: values above 0 only. */
  show(series, options = {}) {
    this.#options = options;
    this.#series = series.map((one) => ({...one, points: options.isLog ? one.points.filter(([, value]) => value > 0) : one.points}))
      .filter(({points}) => points.length > 0);
    this.#draw();
  }

  /** Puts the cursor at a step; null: nowhere. */
  point(step) {
    this.#cursor = step;
    this.svg.querySelector(".cursor")?.remove();
    if (step === null || this.#scale === null) {
      this.said.textContent = this.#options.hint ?? "";
      return;
    }
    const x = this.#scale.x(step);
    this.svg.append(this.#made("line", {class: "cursor", x1: x, x2: x, y1: kMargin.top, y2: kHeight - kMargin.bottom}));
    const values = this.#series.map(({name, points}) => {
      const [at, value] = points[nearest(points, step)];
      return `${name} ${numberText(value)}${at === step ? "" : ` (at ${numberText(at)})`}`;
    });
    this.said.textContent = `step ${numberText(step)}: ${values.join(", ")}`;
  }

  #made(tag, attributes, text) {
    const made = document.createElementNS(this.svg.namespaceURI, tag);
    Object.entries(attributes).forEach(([name, value]) => made.setAttribute(name, value));
    made.textContent = text ?? "";
    return made;
  }

  #draw() {
    const width = this.svg.parentElement.clientWidth;
    this.svg.replaceChildren();
    this.#scale = null;
    if (width === 0 || this.#series.length === 0) {
      this.point(null);
      return;
    }
    this.svg.setAttribute("viewBox", `0 0 ${width} ${kHeight}`);
    this.#scale = this.#scaleOf(width);
    this.#drawAxes(width);
    this.#series.forEach((one) => this.#drawSeries(one));
    this.point(this.#cursor);
  }

  #scaleOf(width) {
    const {isLog} = this.#options;
    const ends = (values) => values.reduce(([least, most], value) => [Math.min(least, value), Math.max(most, value)], [Infinity, -Infinity]);
    const steps = ends(this.#series.flatMap(({points}) => [points[0][0], points.at(-1)[0]]));
    let [least, most] = ends(this.#series.flatMap(({points}) => ends(points.map(([, value]) => value))));
    const isFlat = most - least <= 1e-9 * Math.abs(most);  // Sums of equal values differ in their last digits.
    const room = isLog ? 1.1 : 0.05 * (isFlat ? Math.abs(most) || 1 : most - least);
    [least, most] = isLog ? [least / room, most * room] : [least - room, most + room];
    const heightOf = isLog ? (value) => Math.log(value / least) / Math.log(most / least) : (value) => (value - least) / (most - least);
    const [inner, high] = [width - kMargin.left - kMargin.right, kHeight - kMargin.top - kMargin.bottom];
    return {
      steps, least, most,
      x: (step) => kMargin.left + (inner * (step - steps[0])) / (steps[1] - steps[0] || 1),
      y: (value) => kMargin.top + high * (1 - heightOf(value)),
      stepAt: (x) => steps[0] + ((x - kMargin.left) / inner) * (steps[1] - steps[0]),
    };
  }

  #drawAxes(width) {
    const {x, y, least, most, steps} = this.#scale;
    for (const tick of ticksOf(least, most, this.#options.isLog)) {
      this.svg.append(this.#made("line", {class: "rule", x1: kMargin.left, x2: width - kMargin.right, y1: y(tick), y2: y(tick)}),
                      this.#made("text", {x: kMargin.left - 6, y: y(tick) + 4, "text-anchor": "end"}, numberText(tick)));
    }
    const ticks = steps[0] < steps[1] ? ticksOf(steps[0], steps[1], false) : [steps[0]];
    for (const tick of ticks.filter((one) => width > 500 || ticks.indexOf(one) % 2 === 0)) {
      const anchor = x(tick) > width - 40 ? "end" : "middle";
      this.svg.append(this.#made("text", {x: x(tick), y: kHeight - 5, "text-anchor": anchor}, numberText(tick)));
    }
  }

  #drawSeries({points, kind, hasDots}) {
    const {x, y} = this.#scale;
    const seen = thinned(points, x);
    const path = seen.map(([step, value], index) => `${index === 0 ? "M" : "L"}${x(step).toFixed(1)} ${y(value).toFixed(1)}`).join("");
    this.svg.append(this.#made("path", {class: `curve ${kind}`, d: path}));
    if (hasDots || points.length === 1) {
      this.svg.append(...seen.map(([step, value]) => this.#made("circle", {class: `dot ${kind}`, cx: x(step), cy: y(value), r: 3})));
    }
  }

  #point(event) {
    if (this.#scale !== null) {
      const box = this.svg.getBoundingClientRect();
      const step = this.#scale.stepAt(event.clientX - box.x);
      const [points] = this.#series.map((one) => one.points);
      this.moved(points[nearest(points, step)][0]);
    }
  }

  #key(event) {
    const [points] = this.#series.map((one) => one.points);
    const far = Math.max(1, Math.round((points?.length ?? 0) / 20));
    const by = {ArrowLeft: -1, ArrowRight: 1, PageUp: -far, PageDown: far, Home: -Infinity, End: Infinity}[event.key];
    if (by === undefined || points === undefined || event.ctrlKey || event.altKey || event.metaKey) {
      return;
    }
    event.preventDefault();
    const now = this.#cursor === null ? points.length : nearest(points, this.#cursor);
    this.moved(points[Math.min(points.length - 1, Math.max(0, now + by))][0]);
  }
}

/** Which curve is which. */
export function legend(series) {
  return series.map(({name, kind}) => element("span", {class: `key ${kind}`}, name));
}
