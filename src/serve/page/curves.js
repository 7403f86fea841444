// The numbers of a training run, read on while it trains; a bounded number of them, however long it trains.

export const kMostPoints = 20_000;
const kMostPieces = 4_000;  // Of one reading: a gigabyte.

/** The mean of lines beside each other, at the last one's step. */
function mean(lines) {
  const merged = {};
  for (const name of new Set(lines.flatMap(Object.keys))) {
    const values = lines.map((line) => line[name]).filter((value) => value !== undefined);
    merged[name] = values.reduce((sum, value) => sum + value, 0) / values.length;
  }
  return {...merged, step: lines.at(-1).step};
}

/** Lines, of which twice as many make a point whenever there would be too many points. */
class Points {
  #group = [];
  #size = 1;
  lines = [];

  add(line) {
    this.#group.push(line);
    if (this.#group.length === this.#size) {
      this.lines.push(mean(this.#group));
      this.#group = [];
    }
    if (this.lines.length > kMostPoints) {
      const whole = this.lines;
      const end = whole.length & ~1;
      this.lines = Array.from({length: end / 2}, (_, index) => mean([whole[2 * index], whole[2 * index + 1]]));
      this.#group = whole.slice(end);  // Of half a group's lines, the newest: it counts less than it should, once.
      this.#size *= 2;
    }
  }
}

export class Curves {
  #from = "";
  #training = new Points();
  #looks = new Points();
  #reading = null;

  constructor(api, run) {
    this.api = api;
    this.run = run;
    this.unreadable = 0;
    this.last = null;  // The newest line.
  }

  /** Reads what is new, `seen()` after each piece; false: nothing was. */
  read(seen) {
    this.#reading ??= this.#readOn(seen).finally(() => (this.#reading = null));
    return this.#reading;
  }

  async #readOn(seen) {
    let isNew = false;
    for (let piece = 0; piece < kMostPieces; ++piece) {
      const {lines, next, anew, more, unreadable} = await this.api.metrics(this.run, this.#from);
      if (anew) {
        [this.#training, this.#looks, this.unreadable, this.last] = [new Points(), new Points(), 0, null];
      }
      lines.forEach((line) => this.#add(line));
      this.#from = next;
      this.unreadable += unreadable;
      if (anew || lines.length > 0) {
        isNew = true;
        seen();
      }
      if (!more) {
        break;
      }
    }
    return isNew;
  }

  // Validations are few, and must not be thinned with the lines between them.
  #add(line) {
    const {validation_loss: loss, validation_psnr: psnr, ...others} = line;
    if (loss !== undefined || psnr !== undefined) {
      this.#looks.add({step: line.step, ...(loss !== undefined && {validation_loss: loss}), ...(psnr !== undefined && {validation_psnr: psnr})});
    }
    this.#training.add(others);
    this.last = line;
  }

  /** [[step, value], ...] of a field. */
  points(field) {
    const {lines} = field.startsWith("validation") ? this.#looks : this.#training;
    return lines.filter((line) => line[field] !== undefined).map((line) => [line.step, line[field]]);
  }
}

/** A moving average that begins at the first value; `weight` of what was before, from 0 to below 1. */
export function smoothed(points, weight) {
  let [sum, share] = [0, 0];
  return points.map(([step, value]) => {
    sum = weight * sum + (1 - weight) * value;
    share = weight * share + (1 - weight);
    return [step, sum / share];
  });
}
