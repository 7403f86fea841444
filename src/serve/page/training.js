// The view of training runs: curves, facts and samples, followed while a run trains.

import {Chart, legend, numberText} from "./chart.js";
import {Curves, smoothed} from "./curves.js";
import {byId, element, factList, fillSelect, saveFile} from "./elements.js";
import {Samples} from "./samples.js";

const kSecondsBetweenLooks = 5;

function durationText(seconds) {
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor((seconds % 3600) / 60)];
  return hours > 0 ? `${hours} h ${minutes} min` : minutes > 0 ? `${minutes} min ${Math.floor(seconds % 60)} s` : `${numberText(seconds)} s`;
}

// Trainers whose counter adds each rank's step show steps/s x ranks.
function speedOfRanks({images_per_second: rate}, {recipe, last_start: {ranks}}) {
  const steps = rate / recipe["batch.global"];
  return ranks > 1 && Number.isFinite(steps)
    ? [`${numberText(rate)} pictures/s of ${numberText(ranks)} ranks: ${numberText(steps)} steps/s, ${numberText(steps * ranks)} it/s world-scaled`] : [];
}

export class Training {
  #curves = new Map();  // By run.
  #facts = new Map();
  #looking = null;
  #timer = 0;

  /** `runs`: names; there is one at least. `doing` runs what may fail, and says so. */
  constructor(api, runs, needsKey, doing) {
    this.api = api;
    this.needsKey = needsKey;
    this.doing = doing;
    this.samples = new Samples(api, doing);
    const move = (step) => this.charts.forEach((chart) => chart.point(step));
    this.charts = ["loss", "lr", "speed"].map((name) => new Chart(byId(`chart-${name}`), move));
    fillSelect(byId("training-run"), runs.map((name) => [name, name]));
    byId("training-other-row").hidden = runs.length < 2;
    fillSelect(byId("training-other"), [["", "nothing"], ...runs.map((name) => [name, name])]);
    for (const id of ["training-run", "training-other"]) {
      byId(id).addEventListener("change", () => this.look());
    }
    byId("training-refresh").addEventListener("click", () => this.look());
    byId("training-smoothing").addEventListener("input", () => this.#draw());
    byId("training-log").addEventListener("change", () => this.#draw());
    byId("training-save-report").addEventListener("click", doing(async () => {
      const [run] = this.#chosen;
      saveFile(`${run}-report.html`, await api.report(run));
    }));
  }

  get #chosen() {
    const [run, other] = [byId("training-run").value, byId("training-other").value];
    return other === "" || other === run ? [run] : [run, other];
  }

  /** Reads what is new, and again a few seconds later as long as the view is seen. */
  look() {
    clearTimeout(this.#timer);
    this.#looking ??= this.doing(() => this.#look())().finally(() => {
      this.#looking = null;
      this.#lookLater();
    });
    return this.#looking;
  }

  #lookLater() {
    const isSeen = () => !byId("training").hidden && !document.hidden;
    this.#timer = setTimeout(() => (isSeen() ? this.look() : this.#lookLater()), 1000 * kSecondsBetweenLooks);
  }

  async #look() {
    const chosen = this.#chosen;
    for (const run of chosen) {
      this.#facts.set(run, await this.api.run(run));
      if (!this.#curves.has(run)) {
        this.#curves.set(run, new Curves(this.api, run));
      }
      await this.#curves.get(run).read(() => this.#draw());
    }
    if (this.#chosen.join("\n") !== chosen.join("\n")) {
      return this.#look();  // Another run was chosen meanwhile.
    }
    this.#draw();
    this.#describe();
    await this.samples.take(chosen.map((run) => this.#facts.get(run)));
  }

  #draw() {
    const weight = byId("training-smoothing").valueAsNumber;
    const chosen = this.#chosen.filter((run) => this.#curves.has(run));
    const ofRuns = (make) => chosen.flatMap((run, index) =>
      make(this.#curves.get(run), index === 0 ? "first" : "second", chosen.length > 1 ? `${run} ` : ""));
    const plain = (field, words) => ofRuns((curves, kind, name) => [{name: `${name}${words}`, points: curves.points(field), kind}]);
    const withMean = (field, words) => (weight === 0 ? plain(field, words) : ofRuns((curves, kind, name) => {
      const points = curves.points(field);
      return [{name: `${name}${words}`, points, kind: `${kind} raw`}, {name: `${name}smoothed`, points: smoothed(points, weight), kind}];
    }));
    const losses = [...withMean("loss", "loss"), ...ofRuns((curves, kind, name) =>
      [{name: `${name}validation`, points: curves.points("validation_loss"), kind: `${kind} validation`, hasDots: true}])];
    const hint = "Point at a curve, or move along it with the arrow keys.";
    this.charts[0].show(losses, {isLog: byId("training-log").checked, hint});
    this.charts[1].show(plain("lr", "learning rate"));
    this.charts[2].show(withMean("images_per_second", "pictures/s"));
    byId("training-legend").replaceChildren(...legend(losses.filter(({points}) => points.length > 0)));
    this.#sayHowFar();
  }

  #sayHowFar() {
    const [run] = this.#chosen;
    const [curves, facts] = [this.#curves.get(run), this.#facts.get(run)];
    const last = curves?.last;
    const most = facts?.recipe["schedule.max_steps"];
    const parts = last === null || last === undefined ? ["No metrics yet."] : [
      `step ${numberText(last.step)}${most === undefined ? "" : ` of ${numberText(most)}`}`,
      ...(last.seconds === undefined ? [] : [durationText(last.seconds)]),
      ...(last.goodput === undefined ? [] : [`goodput ${numberText(100 * last.goodput)} %`]),
      ...(facts === undefined ? [] : speedOfRanks(last, facts)),
      ...(curves.unreadable === 0 ? [] : [`${curves.unreadable} lines that could not be read`])];
    byId("training-state").textContent = parts.join(" - ");
  }

  #describe() {
    const columns = this.#chosen.map((run) => {
      const {component, parameters, starts, last_start: start, recipe, checkpoints} = this.#facts.get(run);
      return element("div", {class: "side"}, element("h2", {}, run), factList([
        ["trained", component], ["parameters", parameters === undefined ? undefined : numberText(parameters)],
        ...Object.entries(recipe), ["starts", starts], ...Object.entries(start),
        ["checkpoints", checkpoints.length === 0 ? "none yet" : `${checkpoints.length}, the last at step ${numberText(checkpoints.at(-1))}`]]));
    });
    byId("training-facts").replaceChildren(...columns);
    const [run] = this.#chosen;
    const hasReport = this.#facts.get(run).has_report;
    byId("training-report").hidden = !hasReport || this.needsKey;  // A link sends no key.
    byId("training-report").href = `v1/runs/${encodeURIComponent(run)}/report`;
    byId("training-save-report").hidden = !hasReport || !this.needsKey;
  }
}
