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

/**
 * Records are {id, time, settings, request, seed, model, version, blob}. Where the browser keeps nothing (private windows), they live as
 * long as the page.
 */
export class History {
  #database;
  #kept = [];  // Without a database.

  constructor() {
    this.#database = open().catch(() => null);
  }

  async #store(mode) {
    return (await this.#database)?.transaction(kStore, mode).objectStore(kStore);
  }

  async add(record) {
    const store = await this.#store("readwrite");
    if (store === undefined) {
      this.#kept = [...this.#kept, {...record, id: Date.now() + Math.random()}].slice(-kMostPictures);
      return;
    }
    await done(store.add(record));
    const keys = await done(store.getAllKeys());
    for (const key of keys.slice(0, Math.max(0, keys.length - kMostPictures))) {
      store.delete(key);
    }
  }

  /** The newest first. */
  async list() {
    const store = await this.#store("readonly");
    return (store === undefined ? [...this.#kept] : await done(store.getAll())).reverse();
  }

  async remove(id) {
    this.#kept = this.#kept.filter((record) => record.id !== id);
    const store = await this.#store("readwrite");
    await (store && done(store.delete(id)));
  }

  async clear() {
    this.#kept = [];
    const store = await this.#store("readwrite");
    await (store && done(store.clear()));
  }
}
