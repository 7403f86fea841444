// A picture's settings as the text that stable-diffusion-webui writes into PNG files, and back:
//   prompt
//   Negative prompt: text
//   Steps: 20, Sampler: Euler a, CFG scale: 7.5, Seed: 3, Size: 512x512, Model: name, Version: darkroom 1.0

const kMostCharacters = 50_000;
const kNegative = "Negative prompt:";
// As png_settings.cpp has them: stable-diffusion-webui's sampler and its schedule.
const kSamplers = {
  ddim: ["DDIM", "Automatic"],
  pndm: ["PLMS", "Automatic"],
  euler: ["Euler", "Automatic"],
  euler_a: ["Euler a", "Automatic"],
  dpmpp_2m: ["DPM++ 2M", "Uniform"],
  dpmpp_2m_karras: ["DPM++ 2M", "Karras"],
  unipc: ["UniPC", "Automatic"],
  lcm: ["LCM", "Automatic"],
};
// Pairs with a schedule of their own, and an earlier name.
const kMoreNames = new Map([["dpm++ 2m karras", "dpmpp_2m_karras"], ["dpm++ 2m automatic", "dpmpp_2m_karras"], ["pndm", "pndm"]]);
const kReadNoSchedule = ["ddim", "pndm", "unipc"];

function samplerFrom(text) {
  const name = text.toLowerCase();
  return kMoreNames.get(name) ?? Object.keys(kSamplers).find((own) => own === name || kSamplers[own][0].toLowerCase() === name);
}

/** {sampler, unread}: ours, "" where none is named or it is not known; and what of the names is not known. */
function samplerOf(fields) {
  const [name, schedule] = [fields.get("Sampler") ?? "", fields.get("Schedule type") ?? ""];
  const whole = samplerFrom(`${name} ${schedule}`);
  if (name === "" || whole !== undefined) {
    return {sampler: whole ?? "", unread: ""};
  }
  const sampler = samplerFrom(name);
  if (sampler === undefined) {
    return {sampler: "", unread: `its sampler ${name}${schedule && schedule !== "Automatic" ? ` with schedule ${schedule}` : ""}`};
  }
  const isUsual = ["", "automatic", "uniform"].includes(schedule.toLowerCase()) || kReadNoSchedule.includes(sampler);
  return {sampler, unread: isUsual ? "" : `its schedule ${schedule}`};
}

function valueText(value) {
  const text = String(value);
  return /[,:\n"]/.test(text) ? JSON.stringify(text) : text;
}

function valueFrom(text) {
  try {
    return text.startsWith('"') ? String(JSON.parse(text)) : text;
  } catch {
    return text;
  }
}

function lineOf(fields) {
  const present = fields.filter(([, value]) => value !== undefined && value !== "");
  return present.map(([name, value]) => `${name}: ${valueText(value)}`).join(", ");
}

/** As webui's users know it, of ours. */
export function samplerName(sampler) {
  const [name, schedule] = kSamplers[sampler];
  return schedule === "Karras" ? `${name} ${schedule}` : name;
}

/** `request` as sent to the server; `seed` of this picture. */
export function settingsText({request, seed, model, version}) {
  const [sampler, schedule] = kSamplers[request.sampler] ?? [request.sampler];
  const fields = [
    ["Steps", request.steps],
    ["Sampler", sampler],
    ["Schedule type", schedule],
    ["CFG scale", request.guidance_scale],
    ["Seed", seed],
    ["Size", `${request.width}x${request.height}`],
    ["Model", model],
    ["Denoising strength", request.init_image === undefined ? undefined : request.strength],
    ["Prompt syntax", request.prompt_syntax ?? "plain"],
    ["Version", version && `darkroom ${version}`],
  ];
  const texts = [request.prompt, ...(request.negative_prompt ? [`${kNegative} ${request.negative_prompt}`] : [])];
  const text = [...texts, lineOf(fields)].join("\n");
  const read = settingsFrom(text);
  if (read.prompt === request.prompt && read.negative_prompt === (request.negative_prompt ?? "")) {
    return text;
  }
  // A prompt with lines that look like the others: once more, quoted.
  return [...texts, lineOf([...fields, ["Prompt text", request.prompt], ["Negative text", request.negative_prompt]])].join("\n");
}

function fieldsOf(line) {
  const fields = new Map();
  // A field begins the line or follows a comma: no long text without a colon is looked through from each of its characters.
  for (const [, name, value] of line.matchAll(/(?:^|,)\s*([A-Za-z][\w \-/]*):\s*("(?:\\.|[^\\"])*"|[^,]*)(?=,|$)/g)) {
    fields.set(name.trim(), valueFrom(value.trim()));
  }
  return fields;
}

function numberOf(fields, name) {
  const value = Number(fields.get(name) ?? NaN);
  return Number.isFinite(value) ? value : undefined;
}

function promptsOf(lines, fields) {
  const begin = lines.findIndex((line) => line.trim().startsWith(kNegative));
  const prompt = (begin < 0 ? lines : lines.slice(0, begin)).join("\n").trim();
  const negative = begin < 0 ? "" : lines.slice(begin).join("\n").trim().slice(kNegative.length).trim();
  const quoted = fields.get("Prompt text");
  return quoted === undefined ? {prompt, negative_prompt: negative} : {prompt: quoted, negative_prompt: fields.get("Negative text") ?? ""};
}

/** What the text says, as settings, and as `unread` what is not known of it; what it does not say is left out. An Error: this is no such text. */
export function settingsFrom(text) {
  if (text.length > kMostCharacters) {
    throw new Error("The settings in this picture are too long");
  }
  let end = text.length;
  while (text[end - 1] === "\0") {
    --end;
  }
  const lines = text.slice(0, end).trimEnd().split("\n");
  const fields = fieldsOf(lines.at(-1));
  if (!fields.has("Steps") && !fields.has("Seed")) {
    throw new Error("This picture has a text, but no settings that could be read");
  }
  const [width, height] = (fields.get("Size") ?? "").split("x").map(Number);
  const settings = {
    ...promptsOf(lines.slice(0, -1), fields),
    steps: numberOf(fields, "Steps"),
    prompt_syntax: fields.get("Prompt syntax") === "plain" ? "plain" : "weighted",
    ...samplerOf(fields),
    guidance_scale: numberOf(fields, "CFG scale"),
    seed: numberOf(fields, "Seed"),
    width: width > 0 ? width : undefined,
    height: height > 0 ? height : undefined,
    model: fields.get("Model"),
    strength: numberOf(fields, "Denoising strength"),
  };
  return Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== undefined));
}
