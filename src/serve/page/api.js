// The server's API: jobs, their events and pictures, facts. A refusal becomes a ServerError whose message is a sentence.

const kKeyName = "darkroom.key";
const kMostTries = 5;  // Of what is only read, of a server that has no room for now.
const kNoAnswer = "The server does not answer. Does it still run?";

export class ServerError extends Error {
  constructor(sentence, status = 0, retrySeconds = undefined) {
    super(sentence);
    this.status = status;  // 0: no answer came, or not the whole of it.
    this.retrySeconds = retrySeconds;
  }

  /** Whether the same question may be answered later. */
  get isPassing() {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

function sentenceOf(text, status) {
  try {
    const {error} = JSON.parse(text);
    const said = typeof error === "string" ? error : error?.message;
    if (said) {
      return said[0].toUpperCase() + said.slice(1);
    }
  } catch {
    // No JSON: a proxy's page, which nobody wants to read.
  }
  return `The server refused the request with status ${status}`;
}

async function refusal(reply) {
  const seconds = Number(reply.headers.get("Retry-After") ?? NaN);
  const text = await reply.text().catch(() => "");
  return new ServerError(sentenceOf(text, reply.status), reply.status, Number.isFinite(seconds) ? seconds : undefined);
}

export function waited(seconds) {
  return new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
}

/** The reply's body as `kind`: "json" or "blob". */
async function bodyOf(reply, kind) {
  try {
    return await reply[kind]();
  } catch {
    throw new ServerError(kNoAnswer);
  }
}

/** Events of a text/event-stream as {type, data}; data is what JSON says. */
export async function* eventsOf(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let type = "message";
  let data = [];
  for (;;) {
    const {done, value} = await reader.read();
    if (done) {
      return;
    }
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines.map((one) => one.replace(/\r$/, ""))) {
      if (line === "" && data.length > 0) {
        yield {type, data: JSON.parse(data.join("\n"))};
      }
      if (line === "") {
        type = "message";
        data = [];
      } else if (line.startsWith("event:")) {
        type = line.slice(6).trim();
      } else if (line.startsWith("data:")) {
        data.push(line.slice(5).trimStart());
      }
    }
  }
}

export class Api {
  #asked = null;

  /** `askForKey(wasWrong)` asks the person; it resolves to a key, or to null where there is none. */
  constructor(askForKey) {
    this.askForKey = askForKey;
  }

  get key() {
    return sessionStorage.getItem(kKeyName) ?? "";
  }
  set key(text) {
    if (text) {
      sessionStorage.setItem(kKeyName, text);
    } else {
      sessionStorage.removeItem(kKeyName);
    }
  }

  async facts() {
    return (await this.#ask("GET", "v1/facts")).json();
  }
  /** Of one model; null: it has not been loaded yet, and nothing is known of it. */
  async factsOf(model) {
    try {
      return await (await this.#ask("GET", `v1/facts?model=${encodeURIComponent(model)}`)).json();
    } catch (failure) {
      if (failure.status !== 409) {
        throw failure;
      }
      return null;
    }
  }
  async submit(request) {
    return (await this.#ask("POST", "v1/jobs", request)).json();
  }
  async job(id) {
    return bodyOf(await this.#ask("GET", `v1/jobs/${encodeURIComponent(id)}`), "json");
  }
  async cancel(id) {
    await this.#ask("DELETE", `v1/jobs/${encodeURIComponent(id)}`);
  }
  /** `path` as a job names it. Relative, like all others: the server may lie below a proxy's path. */
  async picture(path) {
    return bodyOf(await this.#ask("GET", path.replace(/^\/+/, "")), "blob");
  }
  /** The names of the training runs that are shown. */
  async runs() {
    return (await (await this.#ask("GET", "v1/runs")).json()).runs.map(({name}) => name);
  }
  /** What the server says of a run, or of a part of it. */
  async run(...parts) {
    return (await this.#ofRun(parts)).json();
  }
  async metrics(run, from) {
    return (await this.#ofRun([run, "metrics"], from && `?from=${from}`)).json();
  }
  async runPicture(run, step, file) {
    return (await this.#ofRun([run, "samples", step, file])).blob();
  }
  async report(run) {
    return (await this.#ofRun([run, "report"])).blob();
  }
  /** The names of the datasets that are shown. */
  async datasets() {
    return (await (await this.#ask("GET", "v1/datasets")).json()).datasets.map(({name}) => name);
  }
  async dataset(name) {
    return (await this.#ask("GET", `v1/datasets/${encodeURIComponent(name)}`)).json();
  }
  /** `wanted`: from, count, q, decode. */
  async datasetRows(name, wanted) {
    return (await this.#ask("GET", `v1/datasets/${encodeURIComponent(name)}/rows?${new URLSearchParams(wanted)}`)).json();
  }
  #ofRun(parts, query = "") {
    return this.#ask("GET", `v1/runs/${parts.map(encodeURIComponent).join("/")}${query}`);
  }
  async* events(id, signal) {
    const reply = await this.#ask("GET", `v1/jobs/${encodeURIComponent(id)}/events`, undefined, signal);
    try {
      yield* eventsOf(reply.body);
    } catch {
      throw new ServerError(kNoAnswer);
    }
  }

  async #ask(method, path, body, signal) {
    for (let tries = 1;; ++tries) {
      const used = this.key;
      const reply = await this.#send(method, path, body, signal);
      if (reply.ok) {
        return reply;
      }
      if (reply.status === 401 && (await this.#newKey(used))) {
        continue;
      }
      const refused = await refusal(reply);
      if (method !== "GET" || reply.status !== 429 || refused.retrySeconds === undefined || tries === kMostTries) {
        throw refused;
      }
      await waited(refused.retrySeconds);
    }
  }

  async #send(method, path, body, signal) {
    if (!/^[\x21-\x7e]*$/.test(this.key)) {  // What no header can hold is no key.
      return new Response(JSON.stringify({error: "a key has printable ASCII characters and no space"}), {status: 401});
    }
    const headers = {};
    if (this.key) {
      headers.Authorization = `Bearer ${this.key}`;
    }
    if (body !== undefined) {
      headers["Content-Type"] = "application/json";
    }
    try {
      return await fetch(path, {method, headers, signal, body: body && JSON.stringify(body), cache: "no-store", redirect: "error"});
    } catch (failure) {
      if (signal?.aborted) {
        throw failure;
      }
      throw new ServerError(kNoAnswer);
    }
  }

  /** Whether there is another key than `used`; all that wait for one ask together. */
  async #newKey(used) {
    if (this.key === used) {
      this.#asked ??= this.askForKey(used !== "").finally(() => (this.#asked = null));
      this.key = (await this.#asked) ?? used;
    }
    return this.key !== "" && this.key !== used;
  }
}
