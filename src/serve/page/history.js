// The last pictures with all their settings, kept by this browser in IndexedDB.

export const kMostPictures = 200;
const kStore = "pictures";

function done(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function open() {
  const request = indexedDB.open("darkroom", 1);
  request.onupgradeneeded = () => request.result.createObjectStore(kStore, {keyPath: "id", autoIncrement: true});
  return done(request);
}

/** Once a transaction is on the disk: its requests are answered before that, and it may still find no room. */
function kept(transaction) {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = resolve;
    transaction.onabort = () => reject(transaction.error ?? new Error("The browser has no room for the history"));
  });
}

/** Deletes what `chosen` picks of the store's keys, the oldest first. */
function forget(store, chosen) {
  const asked = store.getAllKeys();
  asked.onsuccess = () => chosen(asked.result).forEach((key) => store.delete(key));
}

/**
 * Records are {id, time, settings, request, seed, model, version, blob}. Where the browser keeps nothing (private windows) or has no room,
 * they live as long as the page.
 */
export class History {
  #database;
  #kept = [];  // That are not in the database.

  constructor() {
    this.#database = open().catch(() => null);
  }

  /** Errors: there is no database, or no room in it; it is then as it was. */
  async #change(act) {
    const database = await this.#database;
    if (database === null) {
      throw new Error("The browser keeps no history");
    }
    const transaction = database.transaction(kStore, "readwrite");
    const whole = kept(transaction);
    act(transaction.objectStore(kStore));
    await whole;
  }

  async add(record) {
    const store = () => this.#change((all) => {
      all.add(record);
      forget(all, (keys) => keys.slice(0, Math.max(0, keys.length - kMostPictures)));
    });
    try {
      await store().catch(async () => {
        await this.#change((all) => forget(all, (keys) => keys.slice(0, 1)));
        await store();
      });
    } catch {
      this.#kept = [...this.#kept, {...record, id: Date.now() + Math.random()}].slice(-kMostPictures);
    }
  }

  /** The newest first. */
  async list() {
    const database = await this.#database;
    const stored = database === null ? [] : await done(database.transaction(kStore).objectStore(kStore).getAll());
    const all = [...stored, ...this.#kept].sort((one, other) => (one.time ?? 0) - (other.time ?? 0));
    return all.slice(-kMostPictures).reverse();
  }

  async remove(id) {
    const isOurs = this.#kept.some((record) => record.id === id);
    this.#kept = this.#kept.filter((record) => record.id !== id);
    await (isOurs || this.#change((all) => all.delete(id)));
  }

  async clear() {
    this.#kept = [];
    await ((await this.#database) && this.#change((all) => all.clear()));
  }
}
