// The page: which conversations there are, what the server is doing, and the keys.
import {enterKey, getJson, onKeyNeeded} from "./api.js";
import {Conversation} from "./chat.js";
import {Memory, switchText} from "./memory.js";
import {count, element, parameters, rate, tokens} from "./text.js";

const kStorage = "bankmld-conversations";
const kBusyPause = 500, kIdlePause = 2000;  // ms between two looks at the server
const kMostRestored = 20;

const byId = (id) => document.getElementById(id);
const conversations = [];
const memory = new Memory(byId("rows"));
const server = {up: false, slots: null, cache: null, model: null};
const totals = {reused: 0, computed: 0};  // prompt tokens of the answers to this page
let lastSwitch = null;                    // {conversation, timings} of the last answer

// --- conversations ---

function save() {
  const kept = {conversations: conversations.slice(0, kMostRestored), totals};
  try {
    sessionStorage.setItem(kStorage, JSON.stringify(kept));
  } catch {
    // More than the browser keeps: they live as long as the page.
  }
}

function restore() {
  try {
    const kept = JSON.parse(sessionStorage.getItem(kStorage));
    Object.assign(totals, kept?.totals);
    return kept?.conversations ?? [];
  } catch {
    return [];
  }
}

function addConversation(saved) {
  const number = saved?.number ?? Math.max(0, ...conversations.map((other) => other.number)) + 1;
  const made = new Conversation(number, saved, {edited: save, asked, progressed, answered, close});
  conversations.push(made);
  byId("conversations").append(made.column);
  made.fitInput();
  seen.observe(made.column);
  showTabs();
  return made;
}

function close(conversation) {
  conversation.stop();
  const at = conversations.indexOf(conversation);
  conversations.splice(at, 1);
  seen.unobserve(conversation.column);
  conversation.column.remove();
  if (conversations.length === 0) addConversation();
  showTabs();
  save();
  drawMemory();
  conversations[Math.min(at, conversations.length - 1)].focus();
}

let shown = null;  // the conversation that fills a narrow window
const seen = new IntersectionObserver((entries) => {
  const entry = entries.find((candidate) => candidate.isIntersecting);
  if (entry === undefined) return;
  shown = conversations.find((conversation) => conversation.column === entry.target);
  showTabs();
}, {root: byId("conversations"), threshold: 0.6});

function showTabs() {
  byId("tabs").replaceChildren(...conversations.map((conversation) => {
    const tab = element("button", `tab ${conversation.colour}`, conversation.title);
    tab.type = "button";
    tab.setAttribute("aria-current", String(conversation === shown));
    tab.setAttribute("aria-controls", conversation.column.id);
    tab.addEventListener("click", () => conversation.focus());
    return tab;
  }));
  byId("tabs").hidden = conversations.length < 2;
}

function asked(conversation) {
  conversation.inSlotsBefore = (server.slots ?? []).map((slot) => owner(slot.id_task)).filter((found) => found !== undefined);
  showTabs();
  save();
  wakeUp();
}

function progressed(conversation) {
  if (conversation.timings?.predicted_n > 1) byId("state").dataset.speed = rate(conversation.timings.predicted_per_second);
  showState();
}

function answered(conversation, timings) {
  if (timings !== null) {
    totals.reused += timings.cache_n;
    totals.computed += timings.prompt_n;
    lastSwitch = {conversation, timings};
    progressed(conversation);
  }
  save();
  wakeUp();
}

// --- the picture ---

const owner = (task) => conversations.find((conversation) => conversation.task !== null && conversation.task === task);

function where(conversation) {
  if (conversation.task === null) return "";
  const slot = server.slots?.find((candidate) => candidate.id_task === conversation.task && candidate.n_prompt_tokens > 0);
  if (slot) return `${count(slot.n_prompt_tokens)} in ${server.slots.length === 1 ? "the slot" : `slot ${slot.id}`}`;
  const cached = server.cache?.conversations.find((entry) => entry.id_task === conversation.task);
  if (cached) return `${count(cached.tokens)} in host memory`;
  return server.slots && server.cache ? "not held" : "";
}

function drawMemory() {
  memory.draw({slots: server.slots, cache: server.cache, owner, reasons: server.reasons ?? {slots: "", cache: ""}});
  for (const conversation of conversations) conversation.place.textContent = where(conversation);
  showSwitch();
  const all = totals.reused + totals.computed;
  const ofOthers = server.cache?.tokens_reused;
  const more = ofOthers ? ` · all clients since the start: ${count(ofOthers.slot + ofOthers.ram)}` : "";
  byId("saved").textContent = all === 0 ? "" :
    `Saved: ${count(totals.reused)} of ${tokens(all)} of prompts, ${Math.round((100 * totals.reused) / all)} %${more}`;
}

function showSwitch() {
  if (lastSwitch === null) return;
  const {conversation, timings} = lastSwitch;
  const cached = new Set(server.cache?.conversations.map((entry) => entry.id_task));
  const moved = conversation.inSlotsBefore.find((other) => other !== conversation && cached.has(other.task));
  byId("switch").textContent = switchText(conversation.title, timings, moved?.title ?? null);
}

// --- what the server is doing ---

function showState(text) {
  const state = byId("state");
  if (text !== undefined) state.dataset.text = text;
  const busy = server.slots?.some((slot) => slot.is_processing);
  state.className = `state ${server.up ? (busy ? "busy" : "ready") : "down"}`;
  const shown = server.up && state.dataset.speed ? state.dataset.speed : state.dataset.text;
  if (state.textContent !== shown) state.textContent = shown;
}

// Asks for a key if one is needed, but only once by itself: after that the user asks for the question.
let mayAsk = true;
async function describeModel() {
  const quiet = !mayAsk;
  mayAsk = false;
  const {data} = await getJson("v1/models", {quiet});
  const model = data[0];
  const name = model.id.split("/").pop().replace(/\.gguf$/, "");
  byId("model").textContent = `${name} · ${parameters(model.meta.n_params)} · ${model.meta.ftype} · ${count(model.meta.n_ctx)} tokens of context`;
  document.title = `${name} – bankmld`;
  server.model = model;
}

const kReasons = {401: "needs a key", 403: "shown to admin keys only", 404: "not listed by this server", 501: "listing is off"};

const kReasonsDown = {401: "needs a key", 503: "loading the model"};

// A listing, or null with the reason in `server.reasons`.
async function listing(name) {
  try {
    const value = await getJson(name, {quiet: true});
    server.reasons[name] = "";
    return value;
  } catch (error) {
    if (error.status === 0 || error.status === 503) throw error;
    server.reasons[name] = kReasons[error.status] ?? error.message;
    return null;
  }
}

// Tasks are numbered from the start of the daemon: a smaller number in a slot means that it is another daemon.
function forgetAfterRestart(before, now) {
  const restarted = (now ?? []).some((slot) => {
    const was = before?.find((other) => other.id === slot.id)?.id_task;
    return was !== undefined && (slot.id_task === undefined || slot.id_task < was);
  });
  if (!restarted) return;
  for (const conversation of conversations) {
    if (!conversation.running) conversation.task = null;
  }
  lastSwitch = null;
  byId("switch").textContent = "The daemon has been started again: what it held is gone.";
  server.model = null;
}

let lastSlots = null;  // that were really listed
async function look() {
  try {
    if (server.model === null) await describeModel();
    server.reasons ??= {};
    const [slots, cache] = await Promise.all([listing("slots"), listing("cache")]);
    forgetAfterRestart(lastSlots, slots);
    lastSlots = slots ?? lastSlots;
    Object.assign(server, {up: true, slots, cache});
    showState("ready");
    byId("enter-key").hidden = !Object.values(server.reasons).some((reason) => reason === kReasons[401] || reason === kReasons[403]);
  } catch (error) {
    server.up = false;
    server.model = null;
    delete byId("state").dataset.speed;
    showState(kReasonsDown[error.status] ?? "not reachable, trying again");
    byId("enter-key").hidden = error.status !== 401;
  }
  drawMemory();
}

let timer = null;
async function watch() {
  clearTimeout(timer);
  if (document.hidden) return;
  await look();
  clearTimeout(timer);
  const busy = conversations.some((conversation) => conversation.running);
  timer = setTimeout(watch, busy ? kBusyPause : kIdlePause);
}

function wakeUp() {
  clearTimeout(timer);
  timer = setTimeout(watch, 0);
}

// --- dialogs and keys ---

function askForKey(error) {
  const dialog = byId("key-dialog");
  byId("key").value = "";
  byId("key-error").textContent = error;
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      const key = byId("key").value.trim();
      resolve(dialog.returnValue === "use" && key !== "" ? key : null);
    }, {once: true});
  });
}

function bindDialogs() {
  byId("key-dialog").querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    byId("key-dialog").close("use");
  });
  byId("key-cancel").addEventListener("click", () => byId("key-dialog").close("cancel"));
  byId("show-keys").addEventListener("click", () => byId("keys-dialog").showModal());
  byId("enter-key").addEventListener("click", async () => {
    if (await enterKey()) wakeUp();
  });
}

function bindKeys() {
  document.addEventListener("keydown", (event) => {
    if (!event.altKey || event.ctrlKey || event.metaKey) return;
    const digit = /^Digit([1-9])$/.exec(event.code);
    if (event.code === "KeyN") newConversation();
    else if (digit && conversations[digit[1] - 1]) conversations[digit[1] - 1].focus();
    else return;
    event.preventDefault();
  });
}

function newConversation() {
  addConversation().focus();
  save();
}

onKeyNeeded(askForKey);
bindDialogs();
bindKeys();
byId("new").addEventListener("click", newConversation);
document.addEventListener("visibilitychange", wakeUp);
window.addEventListener("pagehide", save);
window.addEventListener("resize", () => memory.redraw());
for (const saved of restore()) addConversation(saved);
while (conversations.length < 1) addConversation();
showState("connecting");
drawMemory();
conversations[0].focus();
watch();
