// What a prompt is made of: kind of image + description + style; and weights of its words, (word:1.3).

/** The prompt and negative prompt that settings stand for. */
export function composedPrompt(settings, templates) {
  const kind = templates.kinds.find((one) => one.name === settings.kind);
  const style = templates.styles.find((one) => one.name === settings.style);
  return `${kind?.before ?? ""}${settings.description}${style?.after ?? ""}`;
}

/** A list of words with another behind it, without what is there already. */
export function withWords(text, words) {
  const have = text.split(",").map((word) => word.trim()).filter((word) => word !== "");
  const more = words.split(",").map((word) => word.trim()).filter((word) => !have.includes(word));
  return [...have, ...more].join(", ");
}

function wordAround(text, at) {
  const isPart = (character) => character !== undefined && !/[\s,.;:()[\]]/.test(character);
  let begin = at;
  let end = at;
  while (begin > 0 && isPart(text[begin - 1])) {
    --begin;
  }
  while (isPart(text[end])) {
    ++end;
  }
  return [begin, end];
}

/** The weighted span "(words:1.2)" that is, or is around, text[begin, end). */
function weightAround(text, begin, end) {
  for (const found of text.matchAll(/\(([^()]*):(\d+(?:\.\d+)?)\)/g)) {
    if (found.index <= begin && end <= found.index + found[0].length) {
      return {begin: found.index, end: found.index + found[0].length, words: found[1], weight: Number(found[2])};
    }
  }
  return null;
}

/**
 * Adds `change` to the weight of the selected words, or of the word at the caret: {text, begin, end}, the words selected anew; null where
 * there is no word. A weight of 1 needs no brackets.
 */
export function reweighted(text, begin, end, change) {
  const around = weightAround(text, begin, end);
  const [from, to] = around !== null ? [around.begin, around.end] : begin < end ? [begin, end] : wordAround(text, begin);
  const words = around?.words ?? text.slice(from, to);
  if (words.trim() === "" || /[()]/.test(words)) {
    return null;
  }
  const weight = Math.round(10 * Math.min(2, Math.max(0.1, (around?.weight ?? 1) + change))) / 10;
  const written = weight === 1 ? words : `(${words}:${weight.toFixed(1)})`;
  const first = from + (weight === 1 ? 0 : 1);
  return {text: text.slice(0, from) + written + text.slice(to), begin: first, end: first + words.length};
}
