// Jobs from "wanted" to "done". The page keeps those that the server has no room for, so that a grid of fifty pictures is one click.

import {ServerError, waited} from "./api.js";
import {keep, withoutPicture} from "./elements.js";

const kMostOpen = 4;  // Jobs of this page that the server has at a time.
const kMostAsks = 60;  // Of one job, of a server that has no room for it.
const kMostSecondsToWait = 30;  // Before a job is asked about again; the first time 1, then twice as long each time.
const kUnknown = [404, 410];  // Statuses of a job that the server does not have any more.
const kOpenName = "darkroom.open";

/** One job. `state`: waiting (in this page), queued, painting, done, failed, cancelled. Says "change" whenever something is new. */
export class Task extends EventTarget {
  state = "waiting";
  id = null;
  step = 0;
  note = "";
  warnings = [];  // Sentences of the server's about what becomes of the request.
  error = "";
  previews = [];  // Data URLs, by the picture's number.
  blobs = [];  // By the picture's number; undefined where the server has withheld it.
  isCancelAsked = false;
  isCancelLost = false;  // The server has not heard of it.

  constructor(request, settings) {
    super();
    this.request = request;
    this.settings = settings;
    this.steps = request.steps;
    this.seeds = Array.from({length: request.images ?? 1}, (_, index) => request.seed + index);
    this.over = new Promise((resolve) => (this.#resolve = resolve));
  }
  #resolve;

  get isOver() {
    return ["done", "failed", "cancelled"].includes(this.state);
  }
  get progress() {
    return this.state === "done" ? 1 : this.steps > 0 ? Math.min(1, this.step / this.steps) : 0;
  }

  update(news) {
    if (this.isOver) {
      return;
    }
    Object.assign(this, news);
    this.dispatchEvent(new Event("change"));
    if (this.isOver) {
      this.#resolve(this);
    }
  }
}

export class PaintQueue extends EventTarget {
  #waiting = [];
  #open = new Set();
  #noted = new Set();  // Of which the server has not said yet that they are over, or unknown.
  #turn = Promise.resolve();  // When the request before has been answered: the server is to paint in the order of the page.

  constructor(api) {
    super();
    this.api = api;
  }

  get openTasks() {
    return [...this.#open, ...this.#waiting];
  }

  add(request, settings) {
    const task = new Task(request, settings);
    this.#waiting.push(task);
    this.#pump();
    return task;
  }

  /** Follows again what this tab had asked for before it was loaded anew. */
  resume() {
    const noted = JSON.parse(sessionStorage.getItem(kOpenName) ?? "[]");
    const tasks = noted.map(({id, request, settings}) => {
      const task = new Task(request, settings);
      task.update({id, state: "queued"});
      this.#noted.add(task);
      this.#run(task);
      return task;
    });
    this.#changed();
    return tasks;
  }

  async cancel(task) {
    task.isCancelAsked = true;
    if (this.#waiting.includes(task)) {
      this.#waiting = this.#waiting.filter((one) => one !== task);
      task.update({state: "cancelled"});
      this.#changed();
    } else if (task.id !== null && !task.isOver) {
      await this.api.cancel(task.id).catch((failure) => task.update({note: failure.message, isCancelLost: failure.isPassing}));
    }
  }

  async cancelAll() {
    await Promise.all(this.openTasks.reverse().map((task) => this.cancel(task)));
  }

  #changed() {
    const noted = [...this.#noted].map(({id, request, settings}) => ({id, request, settings}));
    if (!keep(kOpenName, noted, "sessionStorage")) {  // Start pictures of several jobs are more than a browser keeps.
      keep(kOpenName, noted.map(({id, request, settings}) => ({id, request: withoutPicture(request), settings: withoutPicture(settings)})), "sessionStorage");
    }
    this.dispatchEvent(new Event("change"));
  }

  #pump() {
    while (this.#waiting.length > 0 && this.#open.size < kMostOpen) {
      this.#run(this.#waiting.shift());
    }
    this.#changed();
  }

  async #run(task) {
    this.#open.add(task);
    try {
      if (task.id === null) {
        const submitted = this.#turn.then(() => this.#submit(task));
        this.#turn = submitted.catch(() => {});
        await submitted;
      }
      await this.#follow(task);
      this.#noted.delete(task);
    } catch (failure) {
      if (kUnknown.includes(failure.status)) {
        this.#noted.delete(task);
      }
      task.update({state: task.isCancelAsked ? "cancelled" : "failed", error: failure.message, note: ""});
    }
    this.#open.delete(task);
    this.#pump();
  }

  async #submit(task) {
    for (let asks = 1; !task.isCancelAsked; ++asks) {
      try {
        const job = await this.api.submit(task.request);
        task.update({id: job.id, state: "queued", note: "", seeds: job.seeds ?? task.seeds, warnings: job.warnings ?? []});
        this.#noted.add(task);
        this.#changed();
        if (task.isCancelAsked) {
          await this.cancel(task);
        }
        return;
      } catch (failure) {
        if (failure.status !== 429 || failure.retrySeconds === undefined) {
          throw failure;
        }
        if (asks === kMostAsks) {
          throw new ServerError(`Refused ${kMostAsks} times, the last time because: ${failure.message}`);
        }
        task.update({note: `${failure.message}; asking again in ${failure.retrySeconds} s`});
        await waited(failure.retrySeconds);
      }
    }
    throw new ServerError("");
  }

  /** Until the job is over: what a network or a server that is gone for a while leaves open is asked again. */
  async #follow(task) {
    for (let seconds = 1, drop;; seconds = drop ? Math.min(2 * seconds, kMostSecondsToWait) : 1) {
      for (const ask of [() => this.#listen(task), () => this.#look(task)]) {
        try {
          drop = undefined;
          if (await ask()) {
            return;
          }
        } catch (failure) {
          if (!failure.isPassing) {
            throw failure;
          }
          drop = failure;
        }
      }
      const pause = Math.max(seconds, drop?.retrySeconds ?? 0);
      if (drop !== undefined) {
        const [said, act] = [drop.status === 0 ? "No answer" : drop.message, task.isCancelLost ? "cancelling" : "asking"];
        task.update({note: `${said}; ${act} again in ${pause} s`});
      }
      await waited(pause);
    }
  }

  /** Takes the events of a stream; whether the job is over by them. */
  async #listen(task) {
    if (task.isCancelLost) {
      await this.api.cancel(task.id);
      task.isCancelLost = false;
    }
    for await (const {type, data} of this.api.events(task.id)) {
      if (await this.#take(task, type, data)) {
        return true;
      }
    }
    return false;
  }

  async #look(task) {
    const job = await this.api.job(task.id);
    return this.#take(task, job.status, job);
  }

  /** Whether that was the last event. */
  async #take(task, type, data) {
    if (type === "preview") {
      const previews = [...task.previews];
      previews[data.index] = `data:image/png;base64,${data.image}`;
      task.update({previews});
    } else if (type === "done") {
      const numWithheld = data.images.filter((path) => path === null).length;
      const note = numWithheld === 0 ? "" : `The server's safety checker has blocked ${numWithheld} of ${data.images.length} pictures`;
      if (numWithheld > 0 && numWithheld === data.images.length) {
        task.update({state: "failed", error: note});
        return task.isOver;
      }
      task.update({step: task.steps, note: "fetching the pictures"});
      const blobs = await Promise.all(data.images.map((path) => (path === null ? undefined : this.api.picture(path))));
      task.update({state: "done", blobs, note, seeds: data.seeds ?? task.seeds, warnings: data.warnings ?? []});
    } else if (type === "failed" || type === "cancelled") {
      task.update({state: type, error: sentence(data.error)});
    } else if (data?.step !== undefined) {
      task.update({step: data.step, steps: data.steps ?? task.steps, state: data.status === "queued" ? "queued" : "painting", note: ""});
    }
    return task.isOver;
  }
}

function sentence(error) {
  return typeof error === "string" ? error : error?.message ?? "";
}
