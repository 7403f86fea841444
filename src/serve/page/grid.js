// Two fields of the settings against each other: a labelled table of pictures.

import {byId, discard, element, fillSelect, saveFile, saveJson} from "./elements.js";
import {axisFields, gridCells, numPictures} from "./grid_axes.js";
import {PicturePlace, stateText} from "./task_card.js";

const kForm = "darkroom-grid";
const kAxes = ["x", "y"];

export class Grid {
  #painted = null;  // {settings, x, y, tasks: rows of tasks}.

  /** `page`: {form: SettingsForm, queue, templates, open(task, index), say(sentence)}. */
  constructor(page) {
    this.page = page;
    for (const axis of kAxes) {
      fillSelect(byId(`${axis}-field`), Object.entries(this.fields).map(([name, {label}]) => [name, label]));
      byId(`${axis}-field`).addEventListener("change", () => this.#chosen(axis));
      byId(`${axis}-values`).addEventListener("input", () => this.count());
      byId(`${axis}-all`).addEventListener("click", () => this.#takeAll(axis));
    }
    this.#set({x: {field: "guidance_scale", values: "3, 5, 7.5, 10"}, y: {field: "steps", values: "10, 20, 40"}});
    byId("grid-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.paint();
    });
    byId("grid-json").addEventListener("click", () => this.#saveJson());
    byId("grid-image").addEventListener("click", () => this.#saveImage());
  }

  get fields() {
    return axisFields(this.page.form.modelFacts, this.page.templates);
  }

  #set(axes) {
    for (const axis of kAxes) {
      byId(`${axis}-field`).value = axes[axis].field;
      byId(`${axis}-values`).value = axes[axis].values;
      this.#show(axis);
    }
    this.count();
  }

  #chosen(axis) {
    byId(`${axis}-values`).value = "";
    this.#show(axis);
    this.count();
  }

  #show(axis) {
    const {hint, all} = this.fields[byId(`${axis}-field`).value];
    byId(`${axis}-values`).placeholder = hint;
    byId(`${axis}-values`).hidden = byId(`${axis}-field`).value === "none";
    byId(`${axis}-all`).hidden = all === undefined;
  }

  #takeAll(axis) {
    const {all} = this.fields[byId(`${axis}-field`).value];
    byId(`${axis}-values`).value = all.map((name) => (name.includes(",") ? `"${name}"` : name)).join(", ");
    this.count();
  }

  #axis(name) {
    const field = this.fields[byId(`${name}-field`).value];
    return {field, values: field.values(byId(`${name}-values`).value)};
  }

  /** Says how many pictures the axes are, by what is known of the model by now. */
  count() {
    try {
      const [x, y] = kAxes.map((name) => this.#axis(name));
      const count = numPictures(x, y);
      const [columns, rows] = [x.values.length, y.values.length];
      byId("grid-count").textContent = `${rows} x ${columns}${count === rows * columns ? "" : " cells"} = ${count} pictures`;
    } catch (failure) {
      byId("grid-count").textContent = failure.message;
    }
  }

  paint() {
    const {form, queue} = this.page;
    if (!form.isValid()) {
      return;
    }
    try {
      const settings = {...form.readToPaint(), images: 1};
      const [x, y] = kAxes.map((name) => this.#axis(name));
      const cells = gridCells(settings, x, y);
      this.#painted?.tasks.flat().forEach((task) => queue.cancel(task));
      const tasks = cells.map((row) => row.map((cell) => queue.add(form.requestOf(cell), cell)));
      this.#painted = {settings, x, y, tasks, asked: Object.fromEntries(kAxes.map((name) => [name, this.#asked(name)]))};
      this.page.added(tasks.flat());
      this.#lay();
    } catch (failure) {
      this.page.say(failure.message);
    }
  }

  #asked(name) {
    return {field: byId(`${name}-field`).value, values: byId(`${name}-values`).value};
  }

  #lay() {
    const {settings, x, y, tasks} = this.#painted;
    const caption = [settings.description, [y, x].filter(({field}) => field.label !== "nothing").map(({field}) => field.label).join(" by "),
                     `seed ${settings.seed}`].filter(Boolean).join(" - ");
    const heads = x.values.map((value) => element("th", {scope: "col"}, label(x.field, value)));
    const rows = tasks.map((row, index) => element("tr", {}, element("th", {scope: "row"}, label(y.field, y.values[index])),
                                                   ...row.map((task) => this.#cell(task))));
    [...byId("grid-table").children].forEach(discard);
    byId("grid-table").append(element("table", {}, element("caption", {}, caption),
      element("thead", {}, element("tr", {}, element("td"), ...heads)), element("tbody", {}, ...rows)));
    byId("grid-json").hidden = false;
    byId("grid-image").hidden = false;
  }

  #cell(task) {
    const state = element("span", {class: "dim"});
    const update = () => {
      state.textContent = task.state === "done" ? task.note : stateText(task);
    };
    task.addEventListener("change", update);
    update();
    return element("td", {}, ...task.seeds.map((_, index) => new PicturePlace(task, index, () => this.page.open(task, index)).node), state);
  }

  #saveJson() {
    const {settings, asked} = this.#painted;
    saveJson(`darkroom-grid-${settings.seed}.json`, {format: kForm, version: 1, settings, ...asked});
  }

  /** Takes what #saveJson wrote: form and axes are as they were. */
  restore(saved) {
    if (saved?.format !== kForm || saved.version !== 1) {
      throw new Error("This JSON is no grid of this page");
    }
    for (const axis of kAxes) {
      if (!Object.hasOwn(this.fields, saved[axis]?.field) || typeof saved[axis].values !== "string") {
        throw new Error(`This grid has an axis that is not known here: ${saved[axis]?.field}`);
      }
    }
    this.page.form.write({...saved.settings, keeps_seed: true});
    this.#set(saved);
  }

  async #saveImage() {
    const {tasks, x, y, settings} = this.#painted;
    const canvas = await drawnGrid(tasks, x.values.map((value) => label(x.field, value)), y.values.map((value) => label(y.field, value)));
    canvas.toBlob((blob) => {
      if (blob === null) {
        this.page.say("The browser cannot make a picture as large as this table");
      } else {
        saveFile(`darkroom-grid-${settings.seed}.png`, blob);
      }
    }, "image/png");
  }
}

function label(field, value) {
  return field.isNameless ? value : `${field.label} ${value === "" ? "none" : value}`;
}

/** The table as one picture; what is not painted stays free. */
async function drawnGrid(tasks, columns, rows) {
  const images = await Promise.all(tasks.map((row) => Promise.all(row.map((task) => Promise.all(task.blobs.map((blob) => blob && createImageBitmap(blob)))))));
  const known = images.flat(2).filter(Boolean);
  const [width, height] = [Math.max(64, ...known.map((one) => one.width)), Math.max(64, ...known.map((one) => one.height))];
  const [left, top, gap] = [Math.max(96, width / 4), 32, 4];
  const places = [left];  // Of the columns: a cell's pictures stand beside each other.
  tasks[0].forEach((_, x) => places.push(places[x] + Math.max(...tasks.map((row) => row[x].seeds.length)) * (width + gap)));
  const canvas = element("canvas", {width: places.at(-1), height: top + rows.length * (height + gap)});
  const pen = canvas.getContext("2d");
  pen.fillStyle = "white";
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.fillStyle = "black";
  pen.font = "13px sans-serif";
  pen.textBaseline = "middle";
  columns.forEach((text, x) => pen.fillText(text, places[x], top / 2, width));
  rows.forEach((text, y) => pen.fillText(text, gap, top + y * (height + gap) + height / 2, left - 2 * gap));
  images.forEach((row, y) => row.forEach((cell, x) => cell.forEach((image, index) =>
    image && pen.drawImage(image, places[x] + index * (width + gap), top + y * (height + gap)))));
  return canvas;
}
