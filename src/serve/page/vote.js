// Two settings or models side by side on the same prompts and seeds. Which is which stays hidden until the vote.

import {byId, discard, element, factList, keep, randomBelow, saveJson, withoutPicture} from "./elements.js";
import {PicturePlace} from "./task_card.js";

const kVotesName = "darkroom.votes";
const kMostVotes = 1000;
const kMostPairs = 200;
const kSides = ["a", "b"];
const kChoices = {left: "Left is better", equal: "Equally good", right: "Right is better"};
const kPlaces = ["left", "right"];
const kKeys = {1: "left", 0: "equal", 2: "right"};

function loadVotes() {
  try {
    return JSON.parse(localStorage.getItem(kVotesName) ?? "[]");
  } catch {
    return [];
  }
}

/** {a, b, equal}: how often each was preferred. */
export function tallyOf(votes) {
  return Object.fromEntries(["a", "b", "equal"].map((choice) => [choice, votes.filter((vote) => vote.choice === choice).length]));
}

export class Vote {
  #sides = {a: null, b: null};  // Settings.
  #pairs = [];  // Of this round: {prompt, seed, a: task, b: task, left: "a" or "b"}.
  #shown = 0;
  #votes = loadVotes();

  /** `page`: as the grid's. */
  constructor(page) {
    this.page = page;
    for (const side of kSides) {
      byId(`take-${side}`).addEventListener("click", () => this.#take(side));
      this.#take(side);
    }
    byId("vote-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.start();
    });
    byId("vote-export").addEventListener("click", () => this.#export());
    byId("vote-clear").addEventListener("click", () => this.#clear());
    document.addEventListener("keydown", (event) => this.#key(event));
    this.#showTally();
  }

  #take(side) {
    this.#sides[side] = {...this.page.form.read(), images: 1};
    const {description, steps, guidance_scale, sampler, width, height, kind, style, negative_prompt, model} = this.#sides[side];
    byId(`side-${side}`).replaceChildren(factList([
      ["Model", this.page.form.canChooseModel ? model : undefined], ["Steps", steps], ["Guidance", guidance_scale],
      ["Sampler", sampler || "the model's own"], ["Size", `${width} x ${height}`], ["Kind", kind], ["Style", style],
      ["Negative prompt", negative_prompt], ["Own prompt", description]]));
  }

  start() {
    const {form, queue, say} = this.page;
    const lines = byId("vote-prompts").value.split("\n").map((line) => line.trim()).filter((line) => line !== "");
    const prompts = lines.length > 0 ? lines : [null];
    const [first, count] = [Number(byId("vote-seed").value), Number(byId("vote-count").value)];
    if (prompts.length * count > kMostPairs) {
      say(`A round has at most ${kMostPairs} pairs, and this one ${prompts.length * count}`);
      return;
    }
    this.#pairs.flatMap(({a, b}) => [a, b]).forEach((task) => queue.cancel(task));
    this.#pairs.forEach((pair) => this.#release(pair));  // Nobody will vote on the rest.
    this.#pairs = prompts.flatMap((prompt) => Array.from({length: count}, (_, index) => {
      const asked = (side) => ({...this.#sides[side], seed: first + index, ...(prompt !== null && {description: prompt})});
      const [a, b] = kSides.map((side) => queue.add(form.requestOf(asked(side)), asked(side)));
      return {prompt, seed: first + index, a, b, left: kSides[randomBelow(2)]};
    }));
    this.#shown = 0;
    this.#pairs.forEach(({a, b}) => [a, b].forEach((task) => task.over.then(() => this.#show())));
    this.#show();
  }

  /** Gives a pair's pictures to the history, where they stand with their settings: not before the vote. */
  #release(pair) {
    if (pair.isReleased !== true) {
      pair.isReleased = true;
      this.page.added(kSides.map((side) => pair[side]));
    }
  }

  get #pair() {
    return this.#pairs[this.#shown];
  }

  #show() {
    const pair = this.#pair;
    byId("vote-state").textContent = this.#stateText();
    if (pair === undefined || !pair.a.isOver || !pair.b.isOver) {
      if (pair !== undefined) {
        [...byId("vote-pair").children].forEach(discard);
      }
      return;
    }
    if (pair.a.state !== "done" || pair.b.state !== "done") {
      this.#release(pair);
      byId("vote-pair").replaceChildren(element("p", {}, pair.a.error || pair.b.error || "One of the two was cancelled"),
                                        this.#nextButton("Next pair "));
      return;
    }
    if (pair.choice === undefined && pair.isShown !== true) {
      pair.isShown = true;
      this.#lay(pair);
    }
  }

  #stateText() {
    if (this.#pairs.length === 0) {
      return "Take one side's settings, change the form, take the other's, and paint both.";
    }
    if (this.#pair === undefined) {
      return `All ${this.#pairs.length} pairs are seen.`;
    }
    const isThere = this.#pair.a.isOver && this.#pair.b.isOver;
    return `Pair ${this.#shown + 1} of ${this.#pairs.length}${isThere ? "" : " is being painted"}`;
  }

  #lay(pair) {
    const order = pair.left === "a" ? ["a", "b"] : ["b", "a"];
    const places = order.map((side, index) => element("figure", {},
      this.#place(pair[side], () => this.#choose(kPlaces[index]), kChoices[kPlaces[index]]),
      element("figcaption", {class: "which"}, kPlaces[index])));
    const buttons = Object.entries(kChoices).map(([choice, text]) => {
      const [key] = Object.entries(kKeys).find(([, one]) => one === choice);
      const choose = () => this.#choose(choice);
      return element("button", {type: "button", id: `vote-${choice}`, onclick: choose}, `${text} `, element("kbd", {}, key));
    });
    byId("vote-pair").replaceChildren(element("p", {class: "prompt"}, pair.prompt ?? "each side's own prompt"),
                                      element("div", {class: "pair"}, ...places),
                                      element("div", {class: "row center", id: "vote-buttons"}, ...buttons));
  }

  #place(task, open, label) {
    return new PicturePlace(task, 0, open, label).node;
  }

  #nextButton(text) {
    const attributes = {type: "button", class: "main", id: "vote-next", onclick: () => this.#next()};
    return element("button", attributes, text, element("kbd", {}, "N"));
  }

  #choose(choice) {
    const pair = this.#pair;
    if (pair?.isShown !== true || pair.choice !== undefined) {
      return;
    }
    const right = pair.left === "a" ? "b" : "a";
    pair.choice = {left: pair.left, right, equal: "equal"}[choice];
    const vote = {time: new Date().toISOString(), prompt: pair.a.request.prompt, seed: pair.seed, left: pair.left, choice: pair.choice,
                  a: withoutPicture(pair.a.settings), b: withoutPicture(pair.b.settings)};
    this.#votes = [...this.#votes, vote].slice(-kMostVotes);
    if (!keep(kVotesName, this.#votes)) {
      this.page.say("The browser has no room to keep the votes: save them before you leave the page");
    }
    this.#reveal(pair, right);
    this.#release(pair);
    this.#showTally();
  }

  #reveal(pair, right) {
    const names = [pair.left, right];
    byId("vote-pair").querySelectorAll(".place").forEach((place, index) => {
      const task = pair[names[index]];
      place.before(this.#place(task, () => this.page.open(task, 0)));
      discard(place);
    });
    byId("vote-pair").querySelectorAll(".which").forEach((caption, index) => {
      caption.textContent = names[index].toUpperCase();
      caption.classList.toggle("chosen", pair.choice === names[index]);
    });
    const isLast = this.#shown + 1 === this.#pairs.length;
    const next = this.#nextButton(isLast ? "Done " : "Next pair ");
    byId("vote-buttons").replaceChildren(next);
    next.focus();
  }

  #next() {
    ++this.#shown;
    [...byId("vote-pair").children].forEach(discard);
    this.#show();
  }

  #key(event) {
    const isTyping = event.target.matches("input, textarea, select");
    if (isTyping || byId("vote").hidden || event.ctrlKey || event.altKey || event.metaKey || document.querySelector("dialog[open]")) {
      return;
    }
    if (Object.hasOwn(kKeys, event.key)) {
      this.#choose(kKeys[event.key]);
    } else if (event.key.toLowerCase() === "n") {
      byId("vote-next")?.click();
    }
  }

  #showTally() {
    const {a, b, equal} = tallyOf(this.#votes);
    const count = this.#votes.length;
    byId("vote-tally").textContent = count === 0 ? "No votes yet." : `A ${a} : B ${b}, equal ${equal}, of ${count} votes.`;
    byId("vote-export").hidden = this.#votes.length === 0;
    byId("vote-clear").hidden = this.#votes.length === 0;
  }

  #export() {
    const {model} = this.page.form.facts;  // The server's first.
    saveJson("darkroom-votes.json", {format: "darkroom-votes", version: 1, model, tally: tallyOf(this.#votes), votes: this.#votes});
  }

  #clear() {
    this.#votes = [];
    keep(kVotesName, []);
    this.#showTally();
  }
}
