// The page as a whole: it puts the parts together and gives keys, files and tabs to them.

import {Api} from "./api.js";
import {Datasets} from "./dataset.js";
import {byId, discard, element} from "./elements.js";
import {Gallery} from "./gallery.js";
import {Grid} from "./grid.js";
import {isPng, textOf} from "./png.js";
import {reweighted, withWords} from "./prompt.js";
import {PaintQueue} from "./queue.js";
import {limitOf, SettingsForm} from "./settings.js";
import {samplerName, settingsFrom} from "./settings_text.js";
import {picturesOf, taskCard} from "./task_card.js";
import {Training} from "./training.js";
import {settingsOf, Viewer} from "./viewer.js";
import {Vote} from "./vote.js";

const kMostCards = 40;
const kMostFileBytes = 50_000_000;
// A larger start picture is made smaller first: a request's body and its pixels are bounded.
const kMostStartBytes = 1_000_000;
const kMostStartPixels = 40_000_000;
const kTabs = ["pictures", "grid", "vote", "history", "training", "dataset"];

function say(sentence) {
  byId("problem").hidden = !sentence;
  byId("problem").firstElementChild.textContent = /[.?!]$/.test(sentence) ? sentence : `${sentence}.`;
}

/** As the style sheet has it. */
function isNarrow() {
  return matchMedia("(max-width: 700px)").matches;
}

/** Runs what a person asked for; a failure is said. */
function doing(action) {
  return async (...values) => {
    try {
      return await action(...values);
    } catch (failure) {
      say(failure.message);
    }
  };
}

/** A field that has let go of its file hears of the same one again, which may be another by then. */
function listenToFile(id, take) {
  byId(id).addEventListener("change", doing(async ({target}) => {
    try {
      await take(target.files[0]);
    } finally {
      target.value = "";
    }
  }));
}

function askForKey(wasWrong) {
  byId("key-note").textContent = wasWrong ? "The server does not know that key."
                                          : "It stays in this tab and is forgotten when you close it.";
  byId("key-text").value = "";
  const dialog = byId("key-dialog");
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      byId("change-key").hidden = false;
      resolve(dialog.returnValue === "sent" ? byId("key-text").value.trim() : null);
    }, {once: true});
  });
}

class Page {
  constructor(api, facts, templates, runs, datasets) {
    this.facts = facts;
    this.templates = templates;
    this.form = new SettingsForm(facts, templates, {factsOf: (model) => api.factsOf(model), said: doing,
                                                    modelShown: (shown) => this.#showModel(shown)});
    this.queue = new PaintQueue(api);
    const restore = (picture) => this.restore(picture);
    const start = facts.features?.image_to_image ? doing((picture) => this.startFrom(picture.blob)) : null;
    this.viewer = new Viewer({restore, start});
    this.gallery = new Gallery({restore, open: (picture) => this.viewer.show(picture), say});
    const shared = {form: this.form, queue: this.queue, templates, say, open: (task, index) => this.open(task, index),
                    added: (tasks) => this.keep(tasks)};
    this.grid = new Grid(shared);
    this.vote = new Vote(shared);
    this.training = runs.length > 0 ? new Training(api, runs, facts.features?.keys === true, doing) : null;
    byId("tab-training").hidden = this.training === null;
    this.datasets = datasets.length > 0 ? new Datasets(api, datasets, doing) : null;
    byId("tab-dataset").hidden = this.datasets === null;
    this.#listen();
    this.#listenToStart();
    this.#offer();
    this.#describe(facts);
    byId("guidance").replaceChildren(...templates.guidance.map((sentence) => element("li", {}, sentence)));
    this.queue.resume().forEach((task) => this.show(task));
  }

  #showModel(facts) {
    this.#describe(facts);
    this.grid?.count();  // The form is there before the grid.
  }

  #describe({model, version, native_size: size}) {
    byId("model").textContent = [model, size && `${size} px`, version].filter(Boolean).join(" - ");
  }

  #offer() {
    const chip = (text, act) => element("button", {type: "button", class: "chip", onclick: act}, text);
    const [kind, style] = [this.templates.kinds[0].name, this.templates.styles[0].name];
    byId("examples").replaceChildren(...this.templates.examples.map(({name, ...settings}) =>
      chip(name, () => this.form.write({kind, style, negative_prompt: "", ...settings}))));
    byId("negatives").replaceChildren(...this.templates.negatives.map(({name, text}) =>
      chip(`+ ${name}`, () => this.form.write({negative_prompt: withWords(byId("negative_prompt").value, text)}))));
  }

  #listen() {
    byId("settings").addEventListener("submit", (event) => {
      event.preventDefault();
      this.paint();
    });
    byId("sweep").addEventListener("click", () => this.sweep());
    byId("draw-seed").addEventListener("click", () => this.form.drawSeed());
    byId("swap-sides").addEventListener("click", () => this.form.write({width: byId("height").value, height: byId("width").value}));
    byId("cancel-all").addEventListener("click", () => this.queue.cancelAll());
    listenToFile("open-file", (file) => this.take(file));
    this.queue.addEventListener("change", () => this.#count());
    document.addEventListener("keydown", (event) => this.#key(event));
    document.addEventListener("dragover", (event) => event.preventDefault());
    document.addEventListener("drop", (event) => {
      event.preventDefault();
      const [file] = event.dataTransfer.files;
      const isStart = this.facts.features?.image_to_image && byId("start-picture").contains(event.target);
      doing(() => (isStart ? this.startFrom(file) : this.take(file)))();
    });
  }

  #listenToStart() {
    listenToFile("start-file", (file) => this.startFrom(file));
    byId("start-remove").addEventListener("click", () => {
      this.form.initImage = null;
      this.form.changed();
    });
  }

  #key(event) {
    const isPrompt = event.target.matches("#description, #negative_prompt");
    if (event.isComposing || document.querySelector("dialog[open]")) {
      return;
    }
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey || (isPrompt && !event.shiftKey))) {
      event.preventDefault();
      this.paint();
    } else if (event.key === "Escape") {
      this.queue.cancelAll();
    } else if (isPrompt && event.ctrlKey && ["ArrowUp", "ArrowDown"].includes(event.key) && this.form.readsWeights) {
      event.preventDefault();
      this.#weigh(event.target, event.key === "ArrowUp" ? 0.1 : -0.1);
    }
  }

  #weigh(area, change) {
    const made = reweighted(area.value, area.selectionStart, area.selectionEnd, change);
    if (made !== null) {
      area.value = made.text;
      area.setSelectionRange(made.begin, made.end);
      this.form.changed();
    }
  }

  #count() {
    const open = this.queue.openTasks.length;
    byId("status").textContent = open === 0 ? "" : `${open} ${open === 1 ? "job" : "jobs"} to be painted`;
    byId("cancel-all").hidden = open === 0;
  }

  paint() {
    if (this.form.isValid()) {
      const settings = this.form.readToPaint();
      this.show(this.queue.add(this.form.requestOf(settings), settings));
    }
  }

  /** Seeds in a row, as many at a time as a request may have. */
  sweep() {
    if (!this.form.isValid() || !byId("sweep-count").reportValidity()) {
      return;
    }
    const settings = this.form.readToPaint();
    const most = limitOf(this.facts, "images") ?? 1;
    const last = settings.seed + Number(byId("sweep-count").value);
    const tasks = [];
    for (let seed = settings.seed; seed < last; seed += most) {
      const part = {...settings, seed, images: Math.min(most, last - seed)};
      tasks.push(this.queue.add(this.form.requestOf(part), part));
    }
    tasks.reverse().forEach((task) => this.show(task));  // The first seeds stand first.
  }

  show(task) {
    say("");
    openTab("pictures");
    byId("no-tasks").hidden = true;
    byId("tasks").prepend(taskCard(task, {cancel: (one) => this.queue.cancel(one), open: (one, index) => this.open(one, index)}));
    [...byId("tasks").children].slice(kMostCards).forEach(discard);
    if (isNarrow()) {
      byId("work").scrollIntoView();  // In one column the pictures are below.
    }
    this.keep([task]);
  }

  /** What these tasks paint goes into the history, what they fail at is said. */
  keep(tasks) {
    for (const task of tasks) {
      task.over.then(doing(async () => {
        if (task.state === "failed") {
          throw new Error(task.error || "The picture could not be painted");
        }
        await this.gallery.add(picturesOf(task, this.facts).filter(Boolean));
        await this.form.learnModel();  // It has been loaded by now.
      }));
    }
  }

  open(task, index) {
    this.viewer.show(picturesOf(task, this.facts)[index]);
  }

  restore(picture) {
    // Pictures from before there was a choice were painted plainly.
    const {init_image = null, prompt_syntax = "plain"} = picture.settings;
    this.form.write({...settingsOf(picture), init_image, prompt_syntax});
    byId("description").focus();
  }

  /** A PNG with settings, or a grid's JSON. */
  async take(file) {
    if (file === undefined) {
      return;
    }
    if (file.size > kMostFileBytes) {
      throw new Error("This file is too large to hold settings of a picture");
    }
    const bytes = new Uint8Array(await file.arrayBuffer());
    let unread = "";
    if (file.name.endsWith(".json")) {
      this.grid.restore(JSON.parse(new TextDecoder().decode(bytes)));
      openTab("grid");
    } else if (isPng(bytes)) {
      unread = await this.#takePng(bytes);
    } else {
      throw new Error("Settings are read from PNG files and from a grid's JSON");
    }
    say(unread && `This picture is not read in full: ${unread} is not known here`);
  }

  /** What of the file is not known here; "": nothing. */
  async #takePng(bytes) {
    const text = await textOf(bytes, "parameters");
    if (text === null) {
      throw new Error("This PNG file has no settings in it");
    }
    const {prompt, unread, ...settings} = settingsFrom(text);
    const [kind, style] = [this.templates.kinds[0].name, this.templates.styles[0].name];
    this.form.write({...settings, description: prompt, kind, style, init_image: null,
                     ...(settings.seed !== undefined && {keeps_seed: true})});
    byId("description").focus();
    if (this.form.read().sampler === settings.sampler) {
      return unread;
    }
    this.form.write({sampler: ""});
    return `its sampler ${samplerName(settings.sampler)}`;
  }

  async startFrom(file) {
    if (file !== undefined) {
      this.form.write({init_image: await base64Of(file)});
    }
  }
}

/**
 * The picture as it is seen, and nothing else that the file says (EXIF: place, camera, names): it is written anew, a PNG as a PNG of the same
 * pixels unless it is too large.
 */
async function base64Of(file) {
  const image = await createImageBitmap(file).catch(() => {
    throw new Error("This file is no picture that the browser can read");
  });
  const isLarge = file.size > kMostStartBytes || image.width * image.height > kMostStartPixels;
  const scale = isLarge ? Math.min(1, 1024 / Math.max(image.width, image.height)) : 1;
  const [width, height] = [image.width, image.height].map((side) => Math.max(1, Math.round(side * scale)));
  const canvas = element("canvas", {width, height});
  canvas.getContext("2d").drawImage(image, 0, 0, width, height);
  const type = file.type === "image/png" && !isLarge ? "image/png" : "image/jpeg";
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, type, 0.92));
  if (blob === null) {
    throw new Error("The browser cannot write this picture anew");
  }
  const bytes = new Uint8Array(await blob.arrayBuffer());
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}

function openTab(name) {
  for (const tab of kTabs) {
    byId(tab).hidden = tab !== name;
    byId(`tab-${tab}`).setAttribute("aria-selected", String(tab === name));
    byId(`tab-${tab}`).tabIndex = tab === name ? 0 : -1;
  }
}

function listenToTabs(page) {
  const open = doing(async (name) => {
    openTab(name);
    if (name === "history") {
      await page.gallery.show();
    } else if (name === "training") {
      await page.training.look();
    } else if (name === "dataset") {
      await page.datasets.look();
    }
  });
  kTabs.forEach((name) => {
    byId(`tab-${name}`).addEventListener("click", () => open(name));
    byId(`tab-${name}`).addEventListener("keydown", (event) => {
      const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
      if (step !== undefined) {
        const shown = kTabs.filter((one) => !byId(`tab-${one}`).hidden);
        const next = shown[(shown.indexOf(name) + step + shown.length) % shown.length];
        byId(`tab-${next}`).focus();
        open(next);
      }
    });
  });
}

function listenToDialogs(api) {
  byId("problem").querySelector("button").addEventListener("click", () => say(""));
  byId("key-form").addEventListener("submit", () => (byId("key-dialog").returnValue = "sent"));
  byId("key-send").value = "sent";
  byId("key-cancel").addEventListener("click", () => byId("key-dialog").close(""));
  byId("change-key").addEventListener("click", async () => {
    const key = await askForKey(false);
    if (key !== null) {
      api.key = key;
      location.reload();
    }
  });
}

const api = new Api(askForKey);
listenToDialogs(api);
doing(async () => {
  byId("change-key").hidden = api.key === "";
  const [facts, templates, runs, datasets] = await Promise.all(
    [api.facts(), fetch("page/templates.json").then((reply) => reply.json()), api.runs(), api.datasets()]);
  listenToTabs(new Page(api, facts, templates, runs, datasets));
  if (!isNarrow()) {
    byId("description").focus();  // On a phone a keyboard would cover the page.
  }
  document.documentElement.dataset.ready = "";
})();
