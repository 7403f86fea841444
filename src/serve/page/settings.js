// The form: settings of a picture, kept over visits, and the request that they stand for.

import {byId, element, fillSelect, keep, randomBelow, withoutPicture} from "./elements.js";
import {composedPrompt} from "./prompt.js";

const kSavedName = "darkroom.settings.";  // And the model: another one has other sizes.
const kNumbers = ["width", "height", "steps", "guidance_scale", "seed", "images", "strength"];
const kTexts = ["description", "negative_prompt", "prompt_syntax", "kind", "style", "model", "sampler"];
const kSides = ["width", "height"];
const kSeedBound = 2 ** 32;
const kPreviews = 8;  // In a picture's life.

/** A bound of the server's requests; undefined: it names none. */
export function limitOf(facts, name) {
  return facts.limits?.[`max_${name}`] ?? facts.limits?.[name];
}

/** What the server paints where a request names no size: the model's own, or less where the server's bound is. */
function usualSides({native_size: size, defaults}) {
  return {width: defaults?.width ?? size, height: defaults?.height ?? size};
}

export class SettingsForm {
  #initImage;
  #known;  // Facts by model.
  #listsMore = false;  // Samplers than modelFacts has: one that was asked for of another model.

  /**
   * `facts`: of the server and its first model. `actions`: {factsOf(model) -> facts or null, said(action) -> the action whose failures are
   * said, modelShown(facts)}.
   */
  constructor(facts, templates, actions) {
    this.facts = facts;
    this.modelFacts = facts;  // Of the model that is chosen, as far as it is known.
    this.templates = templates;
    this.actions = actions;
    this.form = byId("settings");
    this.#known = new Map([[facts.model, facts]]);
    this.#fill();
    this.write({...this.#defaults(), ...this.#saved()});
    this.form.addEventListener("input", () => this.changed());
    byId("model-choice").addEventListener("change", actions.said(() => this.#followModel()));
  }

  #field(name) {
    return this.form.elements.namedItem(name);
  }

  #defaults() {
    const {defaults} = this.facts;
    const first = this.templates.examples[0];
    const [kind, style] = [this.templates.kinds[0].name, this.templates.styles[0].name];
    return {description: first.description, negative_prompt: "", prompt_syntax: "weighted", kind, style, sampler: "", ...usualSides(this.facts),
            steps: defaults?.steps ?? 30, guidance_scale: defaults?.guidance_scale ?? 7.5, seed: 1, images: 1, keeps_seed: false};
  }

  #saved() {
    try {
      return JSON.parse(localStorage.getItem(kSavedName + this.facts.model) ?? "{}");
    } catch {
      return {};
    }
  }

  #fill() {
    const {facts, templates} = this;
    const named = (list) => list.map(({name}) => [name, name]);
    fillSelect(byId("kind"), named(templates.kinds));
    fillSelect(byId("style"), named(templates.styles));
    fillSelect(byId("model-choice"), (facts.models ?? []).map((name) => [name, name]));
    byId("model-row").hidden = (facts.models ?? []).length < 2;
    byId("start-picture").hidden = !facts.features?.image_to_image;
    byId("syntax-row").hidden = !facts.features?.weighted_prompts;
    this.#bound("images", 1, limitOf(facts, "images"));
    this.#bound("steps", 1, limitOf(facts, "steps"));
    this.#bound("guidance_scale", 0, limitOf(facts, "guidance_scale"));
    this.#fillModel();
  }

  #fillModel() {
    const {facts, modelFacts: {defaults, samplers, size_multiple: multiple}} = this;
    const own = defaults?.sampler ? ` (${defaults.sampler})` : "";
    const {value: chosen} = this.#field("sampler");
    this.#listsMore = chosen !== "" && !this.#showsChosenModel && !samplers.includes(chosen);
    const listed = this.#listsMore ? [...samplers, chosen] : samplers;
    fillSelect(byId("sampler"), [["", `the model's own${own}`], ...listed.map((name) => [name, name])]);
    for (const side of kSides) {
      this.#bound(side, multiple, limitOf(facts, "side"));
      this.#field(side).step = multiple;
    }
  }

  /** Shows samplers and sizes of the model that is chosen, where they are known by now. */
  async learnModel() {
    if (!this.canChooseModel) {
      return;
    }
    const name = this.#chosenModel;
    if (!this.#known.has(name)) {
      const facts = await this.actions.factsOf(name);
      if (facts !== null) {
        this.#known.set(name, facts);
      }
    }
    if (name !== this.#chosenModel) {
      return;  // Another one has been chosen meanwhile.
    }
    const known = this.#known.get(name);
    byId("model-note").textContent = known ? "" : "Not loaded yet: its own samplers and sizes are known once it has painted.";
    if (known !== this.modelFacts || this.#listsMore) {
      this.modelFacts = known ?? this.facts;
      this.#fillModel();
      this.changed();
    }
    this.actions.modelShown(known ?? {model: name});
  }

  /** A size that was the last model's own becomes that of the model which is chosen now. */
  async #followModel() {
    const before = usualSides(this.modelFacts);
    await this.learnModel();
    const now = usualSides(this.modelFacts);
    for (const side of kSides) {
      if (Number(this.#field(side).value) === before[side]) {
        this.#field(side).value = now[side];
      }
    }
    this.changed();
  }

  #bound(name, least, most) {
    this.#field(name).min = least;
    if (most !== undefined) {
      this.#field(name).max = most;
    }
  }

  get canChooseModel() {
    return (this.facts.models ?? []).length > 1;
  }

  get #chosenModel() {
    return this.#field("model").value || this.facts.model;
  }

  /** Whether samplers and sizes that are shown are those of the model that is chosen. */
  get #showsChosenModel() {
    return !this.canChooseModel || this.#known.get(this.#chosenModel) === this.modelFacts;
  }

  /** Takes what is given; the rest stays. Sizes of another model are taken as they are: the form says what is wrong with them. */
  write(settings) {
    this.#apply(settings);
    if (this.canChooseModel) {
      this.actions.said(() => this.learnModel())();
    }
  }

  #apply(settings) {
    for (const name of [...kNumbers, ...kTexts]) {
      if (name === "sampler" && !this.#showsChosenModel) {
        this.#offerSampler(settings.sampler);
      }
      const field = this.#field(name);
      if (name === "strength" && !(settings.strength >= field.min && settings.strength <= field.max)) {
        continue;  // It may not be seen: nobody could mend it.
      }
      const isChoice = field.tagName === "SELECT";
      if (settings[name] !== undefined && (!isChoice || [...field.options].some(({value}) => value === String(settings[name])))) {
        field.value = settings[name];
      }
    }
    if (settings.keeps_seed !== undefined) {
      byId("keeps-seed").checked = settings.keeps_seed;
    }
    if (settings.init_image !== undefined) {
      this.initImage = settings.init_image;
    }
    this.changed();
  }

  /** A sampler may be the chosen model's alone. #fillModel takes it away again once that model is known and does not have it. */
  #offerSampler(name) {
    const select = byId("sampler");
    if (name !== undefined && ![...select.options].some(({value}) => value === String(name))) {
      select.append(element("option", {value: name}, String(name)));
      this.#listsMore = true;
    }
  }

  read() {
    const settings = {keeps_seed: byId("keeps-seed").checked};
    for (const name of kTexts) {
      settings[name] = this.#field(name).value;
    }
    for (const name of kNumbers) {
      settings[name] = Number(this.#field(name).value);
    }
    settings.init_image = this.facts.features?.image_to_image ? this.#initImage : undefined;
    return settings;
  }

  /** Of settings that are about to be painted: a new seed, unless it is kept. */
  readToPaint() {
    if (!byId("keeps-seed").checked) {
      this.drawSeed();
    }
    return this.read();
  }

  drawSeed() {
    this.#field("seed").value = randomBelow(kSeedBound);
    this.changed();
  }

  /** A base64 text without a prefix, or null. */
  get initImage() {
    return this.#initImage;
  }
  set initImage(base64) {
    this.#initImage = base64 ?? undefined;
    const shown = base64 ? [element("img", {src: `data:image/png;base64,${base64}`, alt: "start picture"})] : [];
    byId("start-shown").replaceChildren(...shown);
    byId("start-file").value = "";
    byId("start-remove").hidden = !base64;
  }

  changed() {
    const settings = this.read();
    keep(kSavedName + this.facts.model, withoutPicture(settings));
    const whole = composedPrompt(settings, this.templates);
    byId("whole-prompt").textContent = whole === settings.description ? "" : `Prompt: ${whole}`;
    byId("strength-row").hidden = !this.#initImage;
    byId("strength").disabled = !this.#initImage;  // What is not seen is not validated.
    byId("weights-hint").hidden = !this.readsWeights;
  }

  /** Whether brackets in the prompts are weights. */
  get readsWeights() {
    return Boolean(this.facts.features?.weighted_prompts) && this.#field("prompt_syntax").value === "weighted";
  }

  isValid() {
    return this.form.reportValidity();
  }

  /** The body of POST /v1/jobs. */
  requestOf(settings) {
    return {
      prompt: composedPrompt(settings, this.templates),
      negative_prompt: settings.negative_prompt,
      ...(this.facts.features?.weighted_prompts && {prompt_syntax: settings.prompt_syntax}),
      width: settings.width,
      height: settings.height,
      steps: settings.steps,
      guidance_scale: settings.guidance_scale,
      seed: settings.seed,
      images: settings.images,
      preview_every: Math.max(1, Math.ceil(settings.steps / kPreviews)),
      ...(settings.sampler && {sampler: settings.sampler}),
      ...(this.canChooseModel && {model: settings.model}),
      ...(settings.init_image && {init_image: settings.init_image, strength: settings.strength}),
    };
  }
}
