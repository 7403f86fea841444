// The history as a gallery: a click on a picture brings all its settings back.

import {byId, element} from "./elements.js";
import {History, kMostPictures} from "./history.js";

export class Gallery {
  #history = new History();
  #addresses = [];
  #shown = "";  // Which records.

  /** `actions`: {restore(picture), open(picture), say(sentence)}. */
  constructor(actions) {
    this.actions = actions;
    byId("history-clear").addEventListener("click", () => this.#change(this.#history.clear()));
  }

  async add(pictures) {
    for (const picture of pictures) {
      await this.#history.add({...picture, time: Date.now()});
    }
    if (!byId("history").hidden) {
      await this.show();
    }
  }

  async show() {
    const records = await this.#history.list();
    const ids = records.map(({id}) => id).join();
    if (ids === this.#shown && records.length > 0) {
      return;  // What is there stays where it is, under a pointer that may be about to click.
    }
    this.#shown = ids;
    this.#addresses.forEach((address) => URL.revokeObjectURL(address));
    this.#addresses = records.map(({blob}) => URL.createObjectURL(blob));
    byId("history-list").replaceChildren(...records.map((record, index) => this.#card(record, this.#addresses[index])));
    byId("history-clear").hidden = records.length === 0;
    byId("history-note").textContent = records.length === 0
      ? "What you paint is kept here, in this browser alone."
      : `The last ${records.length} pictures (at most ${kMostPictures}), kept in this browser alone. ` +
        "A click brings a picture's settings back.";
  }

  #card(record, address) {
    const {prompt, width, height} = record.request;
    const restore = element("button", {type: "button", class: "picture", title: prompt, onclick: () => this.actions.restore(record),
                                       "aria-label": `Restore the settings of: ${prompt}, seed ${record.seed}`},
                            element("img", {src: address, alt: "", loading: "lazy", width, height}));
    return element("figure", {}, restore, element("figcaption", {},
      element("span", {class: "clip"}, prompt || "(no prompt)"),
      element("button", {type: "button", class: "small", onclick: () => this.actions.open(record)}, "View"),
      element("button", {type: "button", class: "small", onclick: () => this.#change(this.#history.remove(record.id))}, "Forget")));
  }

  async #change(done) {
    try {
      await done;
      await this.show();
    } catch (failure) {
      this.actions.say(failure.message);
    }
  }
}
