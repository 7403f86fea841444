// The view of datasets: what one is, and its rows with pictures, page by page or those that a search finds.

import {byId, element, factList, fillSelect} from "./elements.js";

const kRows = 12;  // Of a page.

function table({title, head, rows}) {
  const cells = (tag, texts) => element("tr", {}, ...texts.map((text) => element(tag, {}, text)));
  return element("div", {class: "scroll"}, ...(title ? [element("h3", {}, title)] : []),
                 element("table", {}, ...(head.length > 0 ? [element("thead", {}, cells("th", head))] : []),
                         element("tbody", {}, ...rows.map((row) => cells("td", row)))));
}

function figure({png, label, width, height}) {
  return element("figure", {}, png === null ? undefined : element("img", {src: `data:image/png;base64,${png}`, width, height, alt: label}),
                 label === "" ? undefined : element("figcaption", {class: "dim"}, label));
}

function card({row, caption, pictures, facts}) {
  return element("article", {class: "row-card", "data-row": row},
                 element("div", {class: "row-pictures"}, ...pictures.map(figure)),
                 caption === "" ? undefined : element("p", {}, caption),
                 factList([["row", row.toLocaleString("en")], ...facts]));
}

export class Datasets {
  #facts = null;
  // Of what is shown; they change together, once a page has been found.
  #starts = [0];  // Of the pages up to this one.
  #next = null;   // Where the page behind this one begins; null: there is none.
  #words = "";    // That were searched for.
  #turn = 0;
  #focused = null;  // The button that was pressed for what is looked for.

  /** `names`: of datasets; there is one at least. `doing` runs what may fail, and says so. */
  constructor(api, names, doing) {
    this.api = api;
    fillSelect(byId("dataset-name"), names.map((name) => [name, name]));
    byId("dataset-name-row").hidden = names.length < 2;
    const anew = doing(() => this.#show([Math.max(0, Math.floor(byId("dataset-go").valueAsNumber || 0))], byId("dataset-search").value));
    byId("dataset-name").addEventListener("change", doing(() => this.#choose()));
    byId("dataset-form").addEventListener("submit", (event) => {
      event.preventDefault();
      anew();
    });
    byId("dataset-decodes").addEventListener("change", doing(() => this.#show(this.#starts)));
    byId("dataset-back").addEventListener("click", doing(() => this.#show(this.#starts.slice(0, -1))));
    byId("dataset-on").addEventListener("click", doing(() => this.#show([...this.#starts, this.#next])));
    byId("dataset-go").addEventListener("change", anew);
    this.search = (words) => {
      byId("dataset-search").value = words;
      byId("dataset-go").value = 0;
      return anew();
    };
  }

  /** Shows the first rows, unless some are shown already. */
  async look() {
    if (this.#facts === null) {
      await this.#choose();
    }
  }

  async #choose() {
    const facts = await this.api.dataset(byId("dataset-name").value);
    this.#facts = facts;
    byId("dataset-search").value = "";  // Another dataset has other words and columns.
    byId("dataset-decodes-row").hidden = !facts.decodes;
    byId("dataset-go").value = 0;
    byId("dataset-go").max = Math.max(0, facts.rows - 1);
    this.#describe();
    [this.#starts, this.#next, this.#words] = [[0], null, ""];  // Nothing of this one is shown yet.
    await this.#show([0]);
  }

  #describe() {
    const {kind, rows, tables, rows_by_error: errors} = this.#facts;
    byId("dataset-kind").textContent = `${kind}, ${rows.toLocaleString("en")} rows`;
    byId("dataset-tables").replaceChildren(...tables.map(table));
    const failed = Object.entries(errors).map(([code, count]) => [
      element("button", {type: "button", class: "chip", onclick: () => this.search(code)}, code), count.toLocaleString("en")]);
    byId("dataset-errors").replaceChildren(...(failed.length === 0 ? [] : [table({title: "Rows by error", head: ["error", "rows"], rows: failed})]));
  }

  // A search looks through so many rows at a time: it is asked to go on until a page is full.
  async #find(from, words, turn) {
    const {name} = this.#facts;
    const found = [];
    let next = from;
    while (next !== null && found.length < kRows && turn === this.#turn) {
      const reply = await this.api.datasetRows(name, {from: next, count: kRows - found.length, q: words});
      found.push(...reply.rows);
      next = reply.next;
      if (turn === this.#turn) {
        byId("dataset-state").textContent = next === null ? "" : `Looked through ${next.toLocaleString("en")} rows`;
      }
    }
    return {found, next};
  }

  async #show(starts, words = this.#words) {
    const turn = ++this.#turn;  // Whoever asks for something else does not wait.
    byId("dataset-state").textContent = "Looking";
    this.#offerPages(false);
    const {found, next} = await this.#find(starts.at(-1), words, turn).catch((failure) => {
      if (turn === this.#turn) {
        byId("dataset-state").textContent = "";
        this.#offerPages(true);
      }
      throw failure;
    });
    if (turn !== this.#turn) {
      return;
    }
    [this.#starts, this.#next, this.#words] = [starts, next, words];
    byId("dataset-rows").replaceChildren(...found.map(card));
    byId("dataset-state").textContent = found.length === 0 ? "No such rows."
      : `Rows ${found[0].row.toLocaleString("en")} to ${found.at(-1).row.toLocaleString("en")}`;
    this.#offerPages(true);
    await this.#decode(found, turn);
  }

  // A button that has the focus loses it where it is disabled, and is given it back.
  #offerPages(isThere) {
    const [back, on] = [byId("dataset-back"), byId("dataset-on")];
    this.#focused = [back, on].find((button) => button === document.activeElement) ?? this.#focused;
    back.disabled = !isThere || this.#starts.length < 2;
    on.disabled = !isThere || this.#next === null;
    if (isThere && document.activeElement === document.body) {
      this.#focused?.focus();
    }
    this.#focused = isThere ? null : this.#focused;
  }

  // One by one: an autoencoder takes its time.
  async #decode(found, turn) {
    for (const {row} of this.#facts.decodes && byId("dataset-decodes").checked ? found : []) {
      const {rows: [decoded]} = await this.api.datasetRows(this.#facts.name, {from: row, count: 1, decode: true});
      if (turn !== this.#turn) {
        return;
      }
      byId("dataset-rows").querySelector(`[data-row="${row}"]`).replaceWith(card(decoded));
    }
  }
}
