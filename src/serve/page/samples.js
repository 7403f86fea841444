// What a run has painted while it trained: a step's pictures, or one prompt's from step to step.

import {byId, element, fillSelect} from "./elements.js";

const kMostKept = 300;   // Pictures.
const kMostOfPrompt = 24;  // Steps of one prompt, evenly apart.

/** Pictures of runs by their place, the newest that were looked at. */
class PictureShelf {
  #addresses = new Map();

  constructor(api) {
    this.api = api;
  }

  address(...place) {
    const name = place.join("/");
    const kept = this.#addresses.get(name) ?? this.api.runPicture(...place).then((blob) => URL.createObjectURL(blob));
    this.#addresses.delete(name);
    this.#addresses.set(name, kept);
    kept.catch(() => this.#addresses.delete(name));
    const [[oldest, address]] = this.#addresses;
    if (this.#addresses.size > kMostKept) {
      this.#addresses.delete(oldest);
      address.then((one) => URL.revokeObjectURL(one), () => {});
    }
    return kept;
  }
}

/** What pictures of several runs and steps are compared by: "prompt TEXT", or "file NAME" of one whose prompt is not known. */
function subjectOf({prompt, file}) {
  return prompt === undefined || prompt === null ? `file ${file}` : `prompt ${prompt}`;
}

/** Of `steps` the last that is not after `step`; else the first. */
export function stepBefore(steps, step) {
  return steps.findLast((one) => one <= step) ?? steps[0];
}

export class Samples {
  #runs = [];  // {name, samples: steps}: what is shown, one or two.
  #sheets = new Map();
  #turn = 0;

  constructor(api, doing) {
    this.api = api;
    this.shelf = new PictureShelf(api);
    const show = doing(() => this.#show());
    byId("sample-step").addEventListener("input", show);
    byId("sample-prompt").addEventListener("change", show);
    for (const [id, by] of [["sample-earlier", -1], ["sample-later", 1]]) {
      byId(id).addEventListener("click", () => {
        byId("sample-step").valueAsNumber += by;
        show();
      });
    }
  }

  /** Shows the runs' samples; the slider stays at its step, or with the newest where it was there. */
  async take(runs) {
    const slider = byId("sample-step");
    const before = this.#runs[0]?.name === runs[0].name ? this.#runs[0].samples : [];
    const step = before[slider.valueAsNumber];
    const isAtEnd = before.length === 0 || slider.valueAsNumber === before.length - 1;
    this.#runs = runs.filter(({samples}) => samples.length > 0);
    const steps = runs[0].samples;
    slider.max = Math.max(0, steps.length - 1);
    slider.value = isAtEnd ? slider.max : Math.max(0, steps.indexOf(stepBefore(steps, step)));
    byId("training-samples").hidden = steps.length === 0;
    if (steps.length > 0) {
      await this.#show();
    }
  }

  // The newest may still be filled.
  #sheet(run, step) {
    const name = `${run}/${step}`;
    const kept = this.#sheets.get(name) ?? this.api.run(run, "samples", step);
    if (this.#runs.some((one) => one.name === run && one.samples.at(-1) !== step)) {
      this.#sheets.set(name, kept);
      kept.catch(() => this.#sheets.delete(name));
    }
    return kept;
  }

  async #show() {
    const turn = ++this.#turn;  // Whoever moves the slider on does not wait for what it passed.
    const chosen = this.#runs[0].samples[byId("sample-step").valueAsNumber];
    const newest = await this.#sheet(this.#runs[0].name, chosen);
    if (turn !== this.#turn) {
      return;
    }
    const prompts = new Map(newest.pictures.map((one) => [subjectOf(one), `${one.prompt === "" ? "(no prompt)" : one.prompt ?? one.file}, at all steps`]));
    fillSelect(byId("sample-prompt"), [["", "all, at one step"], ...prompts]);
    const subject = byId("sample-prompt").value;
    byId("sample-slider").hidden = subject !== "";
    const rows = await Promise.all(this.#runs.map(({name, samples}) =>
      (subject === "" ? this.#ofStep(name, stepBefore(samples, chosen)) : this.#ofSubject(name, samples, subject))));
    if (turn === this.#turn) {
      byId("sample-said").textContent = chosen.toLocaleString("en");
      byId("sample-step").setAttribute("aria-valuetext", `step ${chosen}`);
      byId("sample-earlier").disabled = byId("sample-step").valueAsNumber === 0;
      byId("sample-later").disabled = byId("sample-step").value === byId("sample-step").max;
      byId("sample-rows").replaceChildren(...rows.flat());
    }
  }

  async #ofStep(run, step) {
    const {pictures, has_sheet: hasSheet} = await this.#sheet(run, step);
    const shown = pictures.length > 0 ? pictures : hasSheet ? [{file: "sheet.png"}] : [];
    const figures = await Promise.all(shown.map(({file, prompt, seed}) =>
      this.#figure([run, step, file], prompt ?? file, seed === undefined ? "" : `seed ${seed}`)));
    return this.#row(run, `${run}, step ${step.toLocaleString("en")}`, figures, pictures.length === 0);
  }

  async #ofSubject(run, steps, subject) {
    const apart = Math.max(1, (steps.length - 1) / (kMostOfPrompt - 1));
    const some = Array.from({length: Math.min(steps.length, kMostOfPrompt)}, (_, index) => steps[Math.round(index * apart)]);
    const sheets = await Promise.all(some.map((step) => this.#sheet(run, step)));
    const shown = sheets.flatMap(({step, pictures}) => pictures.filter((one) => subjectOf(one) === subject).map((one) => ({step, ...one})));
    const figures = await Promise.all(shown.map(({step, file, seed}) =>
      this.#figure([run, step, file], `step ${step.toLocaleString("en")}`, seed === undefined ? "" : `seed ${seed}`)));
    return this.#row(run, run, figures.length > 0 ? figures : [element("p", {class: "empty"}, `${run} has no samples of this prompt.`)], false);
  }

  #row(run, title, figures, isSheet) {
    return [...(this.#runs.length > 1 ? [element("h3", {}, title)] : []),
            element("div", {class: isSheet ? "sheet" : "gallery", "data-run": run}, ...figures)];
  }

  async #figure(place, caption, more) {
    const address = await this.shelf.address(...place);
    return element("figure", {}, element("a", {href: address, target: "_blank", rel: "noopener", title: caption},
                                         element("img", {src: address, alt: caption})),
                   element("figcaption", {}, element("span", {class: "clip", title: caption}, caption), element("span", {}, more)));
  }
}
