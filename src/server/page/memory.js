// The picture of who holds how many tokens, where: a row for each slot and one for host memory, all on one scale, in which
// a conversation is a block that moves when its state does.
import {bytes, count, element, seconds, tokens} from "./text.js";

const kLeastScale = 128;     // tokens that fill a row, at least
const kLeastWidth = 4;       // pixels of a block
const kGap = 2;
const kLabelWidth = 64;      // a narrower block has no name in it
const kMostCached = 60;      // blocks drawn in host memory; older ones are one block

export class Memory {
  constructor(rows) {
    this.rows = rows;
    this.blocks = new Map();  // by key: elements that stay, so that they move
    this.labels = [];
  }

  // `slots`, `cache`: the listings of the server, or null. `owner(task)`: the Conversation, or undefined.
  // `reasons`: why a listing is missing.
  draw(state) {
    this.last = state;
    const {slots, cache, owner, reasons} = state;
    const rows = [];
    for (const slot of slots ?? []) rows.push(slotRow(slot, slots.length, owner));
    if (slots === null) rows.push({name: "Slot", note: reasons.slots, blocks: []});
    rows.push(cache ? cacheRow(cache, owner) : {name: "Host memory", note: reasons.cache, blocks: []});
    this.rows.classList.toggle("many", rows.length > 5);
    this.makeRows(rows.length);
    const scale = Math.max(kLeastScale, ...rows.map((row) => row.blocks.reduce((sum, block) => sum + block.tokens, 0)));
    const seen = new Map();
    rows.forEach((row, index) => this.drawRow(row, index, scale, seen));
    for (const [key, block] of this.blocks) {
      if (seen.has(key)) continue;
      block.remove();
      this.blocks.delete(key);
    }
  }

  redraw() {
    if (this.last) this.draw(this.last);
  }

  makeRows(n) {
    while (this.labels.length > n) this.labels.pop().row.remove();
    while (this.labels.length < n) {
      const name = element("span", "name"), track = element("div", "track"), note = element("span", "figure");
      track.setAttribute("role", "img");
      const row = element("div", "row", name, track, note);
      this.rows.append(row);
      this.labels.push({row, name, track, note});
    }
  }

  drawRow({name, note, blocks, busy}, index, scale, seen) {
    const label = this.labels[index];
    label.name.textContent = name;
    label.note.textContent = note;
    label.row.classList.toggle("busy", Boolean(busy));
    label.track.setAttribute("aria-label", blocks.length === 0 ? `${name}: empty` :
      `${name}: ${blocks.map((block) => `${block.title}, ${tokens(block.tokens)}`).join("; ")}`);
    const top = label.track.offsetTop, left = label.track.offsetLeft;
    const width = label.track.clientWidth - blocks.length * kGap;
    let x = 0;
    for (const block of blocks) {
      let key = block.key;
      while (seen.has(key)) key += "+";
      seen.set(key, true);
      const w = Math.max(kLeastWidth, (block.tokens / scale) * width);
      this.place(key, block, {x: left + x, y: top, width: w, height: label.track.clientHeight});
      x += w + kGap;
    }
  }

  place(key, block, {x, y, width, height}) {
    let made = this.blocks.get(key);
    if (made === undefined) {
      made = element("div", "block");
      made.setAttribute("aria-hidden", "true");
      this.blocks.set(key, made);
      this.rows.append(made);
    }
    made.className = `block ${block.colour}`;
    made.title = `${block.title}: ${tokens(block.tokens)}${block.detail ? `, ${block.detail}` : ""}`;
    made.style.transform = `translate(${x}px, ${y}px)`;
    made.style.width = `${width}px`;
    made.style.height = `${height}px`;
    const parts = (block.parts ?? []).filter((part) => part.tokens > 0).map((part) => {
      const piece = element("span", `part ${part.kind}`);
      piece.style.flexGrow = String(part.tokens);
      return piece;
    });
    if (width >= kLabelWidth) parts.push(element("span", "title", block.title));
    made.replaceChildren(...parts);
  }
}

function identity(own, task) {
  if (own === undefined) return {key: `task ${task}`, title: "another client", colour: "colour-other"};
  return {key: `conversation ${own.number}`, title: own.title, colour: own.colour};
}

function slotRow(slot, n, owner) {
  const held = slot.n_prompt_tokens ?? 0;
  const own = owner(slot.id_task);
  const name = n === 1 ? "Slot" : `Slot ${slot.id}`;
  const blocks = held === 0 ? [] : [{...identity(own, slot.id_task), tokens: held,
                                    parts: own?.timings ? partsOf(own.timings, held) : []}];
  return {name, blocks, busy: slot.is_processing, note: `${count(held)} of ${tokens(slot.n_ctx)}`};
}

// What the last answer did: the tokens that it found, those of the prompt that it computed, and its own.
function partsOf(timings, held) {
  const reused = Math.min(timings.cache_n, held), computed = Math.min(timings.prompt_n, held - reused);
  return [{kind: "reused", tokens: reused}, {kind: "computed", tokens: computed},
          {kind: "written", tokens: held - reused - computed}];
}

function cacheRow(cache, owner) {
  const newestFirst = cache.conversations.toReversed();
  const blocks = newestFirst.slice(0, kMostCached).map((entry) => {
    const hits = entry.hits > 0 ? `, brought back ${count(entry.hits)} times` : "";
    return {...identity(owner(entry.id_task), entry.id_task), tokens: entry.tokens,
            detail: `${bytes(entry.bytes)}, for ${seconds(entry.age_s * 1000)}${hits}`};
  });
  const rest = newestFirst.slice(kMostCached);
  if (rest.length > 0) {
    blocks.push({key: "rest", title: `${count(rest.length)} older ones`, colour: "colour-other",
                 tokens: rest.reduce((sum, entry) => sum + entry.tokens, 0)});
  }
  const limit = cache.limit_bytes > 0 ? ` of ${bytes(cache.limit_bytes)}` : "";
  return {name: "Host memory", blocks, note: `${tokens(cache.tokens)}, ${bytes(cache.bytes)}${limit}`};
}

// One sentence about what the last answer found. `moved`: the title of the conversation that made room for it, or null.
export function switchText(title, timings, moved) {
  const {cache_n, prompt_n, prompt_ms, cache_from, cache_lost_to_limit} = timings;
  const all = cache_n + prompt_n;
  const computed = `${count(prompt_n)} of ${tokens(all)} computed in ${seconds(prompt_ms)}.`;
  const text = [];
  if (cache_from === "ram" && cache_n > 0) text.push(`“${title}” came back from host memory: ${computed}`);
  else if (cache_from === "slot" && cache_n > 0 && moved === null) text.push(`“${title}” went on in its slot: ${computed}`);
  else text.push(`“${title}” took a slot: ${computed}`);
  if (moved !== null) text.push(`“${moved}” made room and is kept in host memory.`);
  if (cache_lost_to_limit) text.push("The cache had to drop more of it because of its limit.");
  return text.join(" ");
}
