// One picture large, with its settings, to be saved, restored or gone on from.

import {byId, element, factList, saveFile} from "./elements.js";
import {withText} from "./png.js";
import {settingsText} from "./settings_text.js";

/** A painted picture: {blob, settings, request, seed, model, version}. */
export function factsOf({request, seed, model}) {
  return [
    ["Prompt", request.prompt],
    ["Negative prompt", request.negative_prompt],
    ["Prompt syntax", request.prompt_syntax],
    ["Seed", seed],
    ["Steps", request.steps],
    ["Guidance", request.guidance_scale],
    ["Sampler", request.sampler ?? "the model's own"],
    ["Size", `${request.width} x ${request.height}`],
    ["Strength", request.init_image && request.strength],
    ["Model", model],
  ];
}

/** The picture's file with its settings in it. */
export async function fileWithSettings(picture) {
  const bytes = new Uint8Array(await picture.blob.arrayBuffer());
  return new Blob([withText(bytes, "parameters", settingsText(picture))], {type: "image/png"});
}

/** What the form is to have so that this very picture comes first. */
export function settingsOf({settings, seed}) {
  return {...settings, seed, keeps_seed: true};
}

export class Viewer {
  #picture = null;
  #address = "";

  /** `actions`: {restore(picture), start(picture) or null where the server paints from no picture}. */
  constructor(actions) {
    this.actions = actions;
    this.dialog = byId("viewer");
    this.dialog.addEventListener("close", () => URL.revokeObjectURL(this.#address));
  }

  show(picture) {
    const {prompt, width, height} = picture.request;
    this.#picture = picture;
    this.#address = URL.createObjectURL(picture.blob);
    byId("viewer-title").textContent = `Seed ${picture.seed}`;
    byId("viewer-body").replaceChildren(
      element("img", {src: this.#address, alt: prompt, class: "large", width, height}),
      element("div", {}, this.#buttons(), factList(factsOf(picture))));
    this.dialog.showModal();
  }

  #buttons() {
    const act = (action) => () => {
      this.dialog.close();
      action(this.#picture);
    };
    return element("div", {class: "row"},
      element("button", {type: "button", id: "viewer-save", onclick: () => this.#save()}, "Save as PNG"),
      element("button", {type: "button", id: "viewer-restore", onclick: act(this.actions.restore)}, "Restore its settings"),
      this.actions.start && element("button", {type: "button", id: "viewer-start", onclick: act(this.actions.start)}, "Start from it"));
  }

  async #save() {
    saveFile(`darkroom-${this.#picture.seed}.png`, await fileWithSettings(this.#picture));
  }
}
