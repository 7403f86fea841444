// What is shown of one job: its state, its progress, its pictures as they come.

import {element} from "./elements.js";

export function stateText(task) {
  const text = {painting: `step ${task.step} of ${task.steps}`, waiting: "waiting in this page"}[task.state] ?? task.state;
  return [text, task.note, task.error].filter(Boolean).join(": ");
}

/** The pictures of a task that is done, as the viewer takes them; undefined in the place of one that was withheld. */
export function picturesOf(task, facts) {
  const {version, model} = facts;
  return task.blobs.map((blob, index) => blob && {blob, seed: task.seeds[index], settings: task.settings, request: task.request, version,
                                                  model: task.request.model ?? model});
}

/** A place for picture `index` of a task: nothing, then previews, then a button that opens the picture, or does what `label` says. */
export class PicturePlace {
  #shown = "";
  #open;
  #label;

  constructor(task, index, open, label) {
    this.task = task;
    this.index = index;
    this.#open = open;
    this.#label = label;
    this.node = element("div", {class: "place"});
    this.node.style.aspectRatio = `${task.request.width} / ${task.request.height}`;
    this.update();
    task.addEventListener("change", () => this.update());
  }

  update() {
    const {task, index} = this;
    const blob = task.blobs[index];
    const source = blob ?? task.previews[index];
    if (source !== undefined && source !== this.#shown) {
      this.#shown = source;
      this.#show(blob ? URL.createObjectURL(blob) : source, blob !== undefined);
    }
    this.node.classList.toggle("painting", !task.isOver);
    this.node.classList.toggle("gone", task.isOver && blob === undefined);
  }

  #show(address, isWhole) {
    const image = element("img", {src: address, alt: isWhole ? "" : "preview", class: isWhole ? "whole" : "preview"});
    const label = this.#label ?? `Open the picture of seed ${this.task.seeds[this.index]}`;
    const button = {type: "button", class: "picture", "aria-label": label, onclick: this.#open};
    this.node.replaceChildren(isWhole ? element("button", button, image) : image);
  }
}

/** `actions`: {cancel(task), open(task, index), restore(task)}. */
export function taskCard(task, actions) {
  const state = element("span", {class: "state"});
  const progress = element("progress", {max: 1, value: 0, "aria-label": "Progress"});
  const cancel = element("button", {type: "button", class: "cancel", onclick: () => actions.cancel(task)}, "Cancel");
  const warnings = element("div", {class: "warnings"});
  const places = task.seeds.map((seed, index) => element("figure", {}, new PicturePlace(task, index, () => actions.open(task, index)).node,
                                                         element("figcaption", {}, `seed ${seed}`)));
  const card = element("article", {class: "task"},
    element("header", {}, element("p", {class: "prompt"}, task.request.prompt || "(no prompt)"), state, progress, cancel),
    warnings, element("div", {class: "gallery"}, ...places));
  const update = () => {
    warnings.replaceChildren(...task.warnings.map((sentence) => element("p", {class: "note"}, `Note: ${sentence}`)));
    card.dataset.state = task.state;
    state.textContent = stateText(task);
    progress.value = task.progress;
    progress.hidden = task.isOver;
    cancel.hidden = task.isOver;
  };
  task.addEventListener("change", update);
  update();
  return card;
}
