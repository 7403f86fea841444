// Text in PNG files: a picture's settings travel with it, in the chunk `parameters` that other programs read and write, too.

const kSignature = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a];
const kMostTextBytes = 1_000_000;  // Of one chunk: what a stranger's file may make of a few bytes that unpack.

const kCrcTable = Uint32Array.from({length: 256}, (_, index) => {
  let crc = index;
  for (let bit = 0; bit < 8; ++bit) {
    crc = crc & 1 ? 0xedb88320 ^ (crc >>> 1) : crc >>> 1;
  }
  return crc;
});

export function crc32(bytes) {
  let crc = 0xffffffff;
  for (const byte of bytes) {
    crc = kCrcTable[(crc ^ byte) & 0xff] ^ (crc >>> 8);
  }
  return (crc ^ 0xffffffff) >>> 0;
}

export function isPng(bytes) {
  return kSignature.every((byte, index) => bytes[index] === byte);
}

/** Chunks as {type, begin, end, data}, without IEND's followers; an Error says what is wrong with the file. */
export function chunksOf(bytes) {
  if (!isPng(bytes)) {
    throw new Error("This is no PNG file");
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const chunks = [];
  for (let begin = kSignature.length; begin + 12 <= bytes.length;) {
    const size = view.getUint32(begin);
    const end = begin + 12 + size;
    if (end > bytes.length) {
      break;
    }
    const type = String.fromCharCode(...bytes.subarray(begin + 4, begin + 8));
    chunks.push({type, begin, end, data: bytes.subarray(begin + 8, end - 4)});
    if (type === "IEND") {
      return chunks;
    }
    begin = end;
  }
  throw new Error("This PNG file is cut off");
}

function chunk(type, data) {
  const made = new Uint8Array(12 + data.length);
  const view = new DataView(made.buffer);
  view.setUint32(0, data.length);
  made.set(latin1(type), 4);
  made.set(data, 8);
  view.setUint32(8 + data.length, crc32(made.subarray(4, 8 + data.length)));
  return made;
}

function latin1(text) {
  return Uint8Array.from(text, (character) => character.codePointAt(0));
}

function fromLatin1(bytes) {
  return Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
}

function joined(parts) {
  const whole = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** tEXt holds Latin-1 alone; any other text goes into iTXt, not compressed. */
function textChunk(keyword, text) {
  const isLatin1 = /^[\x01-\xff]*$/.test(text);
  return isLatin1 ? chunk("tEXt", joined([latin1(keyword), [0], latin1(text)]))
                  : chunk("iTXt", joined([latin1(keyword), [0, 0, 0, 0, 0], new TextEncoder().encode(text)]));
}

function keywordOf({type, data}) {
  const end = ["tEXt", "iTXt", "zTXt"].includes(type) ? data.indexOf(0) : -1;
  return end < 0 ? null : fromLatin1(data.subarray(0, end));
}

/** The file with this text before its pixels, in place of another text of that keyword. */
export function withText(bytes, keyword, text) {
  const parts = [bytes.subarray(0, kSignature.length)];
  let isIn = false;
  for (const one of chunksOf(bytes)) {
    if (one.type === "IDAT" && !isIn) {
      parts.push(textChunk(keyword, text));
      isIn = true;
    }
    if (keywordOf(one) !== keyword) {
      parts.push(bytes.subarray(one.begin, one.end));
    }
  }
  return joined(parts);
}

async function inflated(bytes) {
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate")).getReader();
  const parts = [];
  for (let size = 0;;) {
    const {done, value} = await reader.read();
    if (done) {
      return joined(parts);
    }
    parts.push(value);
    size += value.length;
    if (size > kMostTextBytes) {
      reader.cancel();
      throw new Error("The settings in this PNG file unpack to more than 1 MB");
    }
  }
}

async function chunkText({type, data}) {
  const rest = data.subarray(data.indexOf(0) + 1);
  if (type === "tEXt") {
    return fromLatin1(rest);
  }
  if (type === "zTXt") {
    return fromLatin1(await inflated(rest.subarray(1)));
  }
  const language = rest.indexOf(0, 2);
  const begin = rest.indexOf(0, language + 1) + 1;
  const text = rest.subarray(begin);
  return new TextDecoder().decode(rest[0] === 1 ? await inflated(text) : text);
}

/** The text of a keyword, or null where there is none. Errors: no PNG, cut off, a text chunk that is damaged or too long. */
export async function textOf(bytes, keyword) {
  const found = chunksOf(bytes).find((one) => keywordOf(one) === keyword);
  if (found === undefined) {
    return null;
  }
  if (found.data.length > kMostTextBytes) {
    throw new Error("The settings in this PNG file are too long");
  }
  const crc = crc32(found.data.length === 0 ? [] : new Uint8Array(joined([latin1(found.type), found.data])));
  const stored = new DataView(found.data.buffer, found.data.byteOffset + found.data.length, 4).getUint32(0);
  if (crc !== stored) {
    throw new Error("The settings in this PNG file are damaged");
  }
  return chunkText(found);
}
