// Elements of the page. Text goes in as text only, so nothing that a person, a file or a server says becomes markup.

/** element("p", {class: "dim", onclick: f, hidden: true}, "text", child): functions are listeners, truth values are attributes or none. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") {
      made.addEventListener(name.slice(2), value);
    } else if (typeof value === "boolean") {
      made.toggleAttribute(name, value);
    } else if (value !== undefined) {
      made.setAttribute(name, value);
    }
  }
  made.append(...children.filter((child) => child !== undefined && child !== null));
  return made;
}

/** Settings or a request without the start picture, which is too large for the stores of the browser. */
export function withoutPicture({init_image: unused, ...rest}) {
  return rest;
}

export function byId(id) {
  return document.getElementById(id);
}

/** Fills a <select> with [value, text] pairs and keeps what was chosen where it is still there. */
export function fillSelect(select, choices) {
  const before = select.value;
  select.replaceChildren(...choices.map(([value, text]) => element("option", {value}, text)));
  if (choices.some(([value]) => value === before)) {
    select.value = before;
  }
}

/** <dt>, <dd> pairs of the facts that are there. */
export function factList(facts) {
  const list = element("dl", {class: "facts"});
  for (const [name, value] of facts) {
    if (value !== undefined && value !== "") {
      list.append(element("dt", {}, name), element("dd", {}, String(value)));
    }
  }
  return list;
}

/** Takes an element away and lets go of the pictures in it. */
export function discard(node) {
  node.querySelectorAll("img[src^='blob:']").forEach((image) => URL.revokeObjectURL(image.src));
  node.remove();
}

export function saveFile(name, blob) {
  const address = URL.createObjectURL(blob);
  const link = element("a", {href: address, download: name});
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

export function saveJson(name, value) {
  saveFile(name, new Blob([JSON.stringify(value, null, 2) + "\n"], {type: "application/json"}));
}

/** Keeps a value as JSON for later; false: the browser has no room for it, or keeps nothing. */
export function keep(name, value, store = "localStorage") {
  try {
    window[store].setItem(name, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

/** A random whole number below `bound` (at most 2^32). */
export function randomBelow(bound) {
  const [drawn] = crypto.getRandomValues(new Uint32Array(1));
  return Math.floor((drawn / 2 ** 32) * bound);
}
