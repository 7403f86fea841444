// The axes of a grid: which field of the settings takes which values.

const kMostValues = 100;

/** "a, "b, c", , """ -> ["a", "b, c", ""]: what is empty is meant only between quotation marks. */
export function listed(text) {
  const values = [];
  for (const [, quoted, plain] of text.matchAll(/\s*(?:"((?:[^"]|"")*)"|([^,]*))\s*(?:,|$)/g)) {
    if (quoted !== undefined) {
      values.push(quoted.replaceAll('""', '"'));
    } else if (plain.trim() !== "") {
      values.push(plain.trim());
    }
  }
  return values;
}

/** "1-5", "10-50 (+10)" or "1-9 [5]" -> its numbers; null: that is no range. */
function ranged(text) {
  const found = /^(\d+(?:\.\d+)?)\s*-\s*(\d+(?:\.\d+)?)(?:\s*\(\+(\d+(?:\.\d+)?)\)|\s*\[(\d+)\])?$/.exec(text);
  if (found === null) {
    return null;
  }
  const [first, last] = [Number(found[1]), Number(found[2])];
  const step = found[4] !== undefined ? (last - first) / Math.max(1, Number(found[4]) - 1) : Number(found[3] ?? 1);
  const count = found[4] !== undefined ? Number(found[4]) : step > 0 ? Math.floor((last - first) / step + 1e-9) + 1 : 0;
  if (last < first || count < 1 || count > kMostValues) {
    throw new Error(`A range goes up and has at most ${kMostValues} numbers: ${text}`);
  }
  return Array.from({length: count}, (_, index) => Number((first + index * step).toFixed(6)));
}

function numbers(text, isWhole) {
  return listed(text).flatMap((part) => {
    const values = ranged(part) ?? [Number(part)];
    const wrong = values.find((value) => !Number.isFinite(value) || (isWhole && !Number.isInteger(value)));
    if (wrong !== undefined) {
      throw new Error(`This is no ${isWhole ? "whole " : ""}number of an axis: ${part}`);
    }
    return values;
  });
}

function sizes(text) {
  return listed(text).map((part) => {
    const found = /^(\d+)\s*[x×]\s*(\d+)$/.exec(part);
    if (found === null) {
      throw new Error(`A size is WIDTHxHEIGHT: ${part}`);
    }
    return `${found[1]}x${found[2]}`;
  });
}

function oneOf(names, what) {
  return (text) => listed(text).map((name) => {
    if (!names.includes(name)) {
      throw new Error(`There is no ${what} "${name}"; there are: ${names.join(", ")}`);
    }
    return name;
  });
}

function field(name, isWhole, label, hint) {
  return {label, hint, values: (text) => numbers(text, isWhole), apply: (settings, value) => ({...settings, [name]: value})};
}

function named(name, label, names) {
  return {label, all: names, hint: names.slice(0, 3).join(", "), values: oneOf(names, label.toLowerCase()),
          apply: (settings, value) => ({...settings, [name]: value})};
}

function text(name, label, hint) {
  return {label, hint, values: listed, apply: (settings, value) => ({...settings, [name]: value})};
}

const kWords = {
  label: "Words",
  isNameless: true,
  hint: "apple, pear, plum",
  values: listed,
  apply: (settings, value, [first]) => {
    if (first === "" || (!settings.description.includes(first) && !settings.negative_prompt.includes(first))) {
      throw new Error(`The first of the words is to be in a prompt, to be replaced; it is not: ${first}`);
    }
    const replaced = (text) => text.replaceAll(first, () => value);
    return {...settings, description: replaced(settings.description), negative_prompt: replaced(settings.negative_prompt)};
  },
};

/** Fields by name: {label, isNameless?, isCount?, hint, all?, values(text) -> values or an Error, apply(settings, value, values) -> settings}. */
export function axisFields(facts, templates) {
  return {
    none: {label: "nothing", isNameless: true, hint: "", values: () => [""], apply: (settings) => settings},
    words: kWords,
    negative_prompt: text("negative_prompt", "Negative prompt", 'blurry, "blurry, grey", ""'),
    ...(facts.features?.weighted_prompts && {prompt_syntax: named("prompt_syntax", "Prompt syntax", ["weighted", "plain"])}),
    steps: field("steps", true, "Steps", "10-50 (+10)"),
    guidance_scale: field("guidance_scale", false, "Guidance", "3, 5, 7.5, 10"),
    sampler: named("sampler", "Sampler", facts.samplers),
    seed: field("seed", true, "Seed", "1-4"),
    images: {...field("images", true, "Pictures", "1, 2, 4"), isCount: true},
    size: {label: "Size", hint: "512x512, 768x512", values: sizes, apply: (settings, value) => {
      const [width, height] = value.split("x").map(Number);
      return {...settings, width, height};
    }},
    kind: named("kind", "Kind of image", templates.kinds.map(({name}) => name)),
    style: named("style", "Style", templates.styles.map(({name}) => name)),
    ...((facts.models ?? []).length > 1 && {model: named("model", "Model", facts.models)}),
    ...(facts.features?.image_to_image && {strength: field("strength", false, "Strength", "0.3, 0.5, 0.8")}),
  };
}

/** One a cell, unless an axis says how many; of two such, the rows. */
export function numPictures(x, y) {
  const [axis, other] = y.field.isCount ? [y, x] : [x, y];
  const values = axis.field.isCount ? axis.values : axis.values.map(() => 1);
  return other.values.length * values.reduce((sum, value) => sum + value, 0);
}

/** The cells of a grid as rows of settings. An Error says which axis is wrong. */
export function gridCells(settings, x, y) {
  const rows = y.values.map((row) => x.values.map((column) => y.field.apply(x.field.apply(settings, column, x.values), row, y.values)));
  if (x.values.length * y.values.length === 0) {
    throw new Error("An axis of the grid has no values");
  }
  const count = numPictures(x, y);
  if (count > kMostValues) {
    throw new Error(`A grid has at most ${kMostValues} pictures, and this one ${count}`);
  }
  return rows;
}
