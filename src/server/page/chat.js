// One conversation: its messages, its column on the page, and the answer that is being written.
import {ApiError, postStream} from "./api.js";
import {count, element, formatted, rate, seconds, tokens} from "./text.js";

const kTitleLength = 40;
const kNearEnd = 48;  // pixels
const kColours = 6;  // as page.css has

const kFieldsOfSettings = {system: String, temperature: Number, max_tokens: Number};

export class Conversation {
  // `saved`: what toJSON() gave. Of the callbacks, all with the conversation, `edited` tells of what is only to be kept,
  // `asked` and `answered` of the begin and the end of an answer, `progressed` of its parts.
  constructor(number, saved, callbacks) {
    this.number = number;
    this.messages = saved?.messages ?? [];
    endAnswerOfBefore(this.messages.at(-1));
    this.settings = saved?.settings ?? {};
    this.draft = saved?.draft ?? "";
    this.task = saved?.task ?? null;  // the engine's name of its last answer: how slots and cache listings call it
    this.timings = saved?.timings ?? null;
    this.running = null;  // an AbortController while an answer is being made
    this.callbacks = callbacks;
    this.build();
  }

  toJSON() {
    const {number, messages, settings, draft, task, timings} = this;
    return {number, messages, settings, draft, task, timings};
  }

  get title() {
    const first = this.messages.find((message) => message.role === "user")?.content.replace(/[`#*\s]+/g, " ").trim();
    if (!first) return `Conversation ${this.number}`;
    return first.length > kTitleLength ? `${first.slice(0, kTitleLength - 1).trimEnd()}…` : first;
  }

  get colour() {
    return `colour-${((this.number - 1) % kColours) + 1}`;
  }

  build() {
    this.column = document.getElementById("conversation").content.firstElementChild.cloneNode(true);
    this.column.classList.add(this.colour);
    this.column.id = `conversation-${this.number}`;
    const find = (selector) => this.column.querySelector(selector);
    this.heading = find("h2");
    this.place = find(".place");
    this.transcript = find(".transcript");
    this.input = find(".composer textarea");
    this.button = find(".composer .send");
    this.settingsForm = find(".settings");
    this.settingsButton = find(".open-settings");
    this.settingsForm.id = `${this.column.id}-settings`;
    this.settingsButton.setAttribute("aria-controls", this.settingsForm.id);

    // Who reads the end goes on reading the end, whatever becomes larger or smaller.
    this.atEnd = true;
    this.transcript.addEventListener("scroll", () => (this.atEnd = this.isAtEnd()));
    new ResizeObserver(() => this.keepEnd()).observe(this.transcript);
    find(".close").addEventListener("click", () => this.callbacks.close(this));
    this.settingsButton.addEventListener("click", () => this.showSettings(this.settingsForm.hidden));
    this.settingsForm.addEventListener("submit", (event) => event.preventDefault());
    this.settingsForm.addEventListener("input", () => this.readSettings());
    for (const name of Object.keys(kFieldsOfSettings)) this.settingsForm.elements[name].value = this.settings[name] ?? "";
    this.input.value = this.draft;
    this.input.addEventListener("input", () => this.edited());
    this.input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.submit();
    });
    find(".composer").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.running) this.stop();
      else this.submit();
    });
    this.column.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.running) this.stop();
    });
    this.showAll();
  }

  isAtEnd() {
    const {scrollHeight, scrollTop, clientHeight} = this.transcript;
    return scrollHeight - scrollTop - clientHeight < kNearEnd;
  }

  keepEnd() {
    if (this.atEnd) this.transcript.scrollTop = this.transcript.scrollHeight;
  }

  edited() {
    this.draft = this.input.value;
    this.fitInput();
    this.callbacks.edited(this);
  }

  fitInput() {
    this.input.style.height = "auto";
    this.input.style.height = `${this.input.scrollHeight}px`;
  }

  showSettings(open) {
    this.settingsForm.hidden = !open;
    this.settingsButton.setAttribute("aria-expanded", String(open));
    if (open) this.settingsForm.elements.system.focus();
  }

  readSettings() {
    this.settings = {};
    for (const [name, type] of Object.entries(kFieldsOfSettings)) {
      const field = this.settingsForm.elements[name];
      if (field.value.trim() !== "" && field.validity.valid) this.settings[name] = type(field.value);
    }
    this.callbacks.edited(this);
  }

  showAll() {
    this.heading.textContent = this.title;
    this.column.setAttribute("aria-label", this.title);
    if (this.messages.length === 0) {
      this.transcript.replaceChildren(element("p", "empty", "Say something. Two conversations that take turns show how their state moves between slot and host memory."));
      return;
    }
    this.transcript.replaceChildren(...this.messages.map((message) => this.messageElement(message)));
    this.atEnd = true;
    this.keepEnd();
  }

  messageElement(message) {
    const made = element("div", `message ${message.role}`);
    made.append(element("span", "unseen", message.role === "user" ? "You: " : "Answer: "));
    if (message.reasoning) {
      const thinking = element("details", "thinking", element("summary", "", "Thinking"), ...formatted(message.reasoning));
      thinking.open = this.thinkingOpen ?? message.content === "";
      thinking.addEventListener("toggle", () => (this.thinkingOpen = thinking.open));
      made.append(thinking);
    }
    made.append(...formatted(message.content));
    if (message.waiting) made.append(element("p", "note waiting", message.waiting));
    if (message.timings) made.append(element("p", "note", timingsText(message.timings)));
    if (message.note) made.append(this.noteElement(message));
    return made;
  }

  noteElement(message) {
    const note = element("p", message.failed ? "note error" : "note", message.note);
    if (message.failed) {
      note.setAttribute("role", "alert");
      const again = element("button", "quiet small again", "Try again");
      again.type = "button";
      again.addEventListener("click", () => this.retry());
      note.append(" ", again);
    }
    return note;
  }

  // Shows the last message anew.
  showLast() {
    this.transcript.lastElementChild.replaceWith(this.messageElement(this.messages.at(-1)));
    this.keepEnd();
  }

  submit() {
    const text = this.input.value.trim();
    if (text === "" || this.running) return;
    this.input.value = this.draft = "";
    this.fitInput();
    this.messages.push({role: "user", content: text});
    this.answer();
  }

  retry() {
    if (this.running) return;
    if (this.messages.at(-1)?.role === "assistant") this.messages.pop();
    this.answer();
    this.input.focus();
  }

  stop() {
    this.running?.abort();
  }

  request() {
    const {system, ...sampling} = this.settings;
    const messages = [];
    for (const {role, content} of this.messages) {
      if (content === "") continue;
      // After an answer that never came; templates want the roles to take turns.
      if (messages.at(-1)?.role === role) messages.at(-1).content += `\n\n${content}`;
      else messages.push({role, content});
    }
    if (system) messages.unshift({role: "system", content: system});
    return {messages, stream: true, timings_per_token: true, return_progress: true, ...sampling};
  }

  // Asks for an answer to the last message and shows it as it comes.
  async answer() {
    const body = this.request();
    const message = {role: "assistant", content: "", waiting: "waiting for its turn", unfinished: true};
    this.messages.push(message);
    this.running = new AbortController();
    this.setRunning(true);
    this.showAll();
    this.callbacks.asked(this);
    const draw = drawnAtLeisure(() => {
      if (!this.running) return;
      this.showLast();
      this.callbacks.progressed(this);
    });
    try {
      for await (const event of postStream("v1/chat/completions", body, this.running.signal)) {
        this.take(message, event);
        draw();
      }
    } catch (error) {
      this.fail(message, error);
    }
    delete message.waiting;
    delete message.unfinished;
    this.running = null;
    this.setRunning(false);
    this.showLast();
    this.callbacks.answered(this, message.timings ?? null);
  }

  take(message, event) {
    const progress = event.prompt_progress;
    if (progress) message.waiting = `reading the prompt: ${count(progress.processed)} of ${tokens(progress.total)}`;
    const delta = event.choices?.[0]?.delta ?? {};
    if (delta.reasoning_content) message.reasoning = (message.reasoning ?? "") + delta.reasoning_content;
    if (delta.content) message.content += delta.content;
    if (delta.content || delta.reasoning_content) delete message.waiting;
    if (event.choices?.[0]?.finish_reason === "length") message.note = "It ends here: the limit of tokens is reached.";
    if (event.timings) {
      message.timings = this.timings = event.timings;
      this.task = event.timings.id_task;
    }
  }

  fail(message, error) {
    if (error.name === "AbortError") {
      message.note = "Stopped.";
      return;
    }
    if (!(error instanceof ApiError)) console.error(error);
    message.failed = true;
    message.note = error.message;
  }

  setRunning(running) {
    this.transcript.setAttribute("aria-busy", String(running));
    this.button.textContent = running ? "Stop" : "Send";
    this.column.classList.toggle("running", running);
  }

  focus() {
    this.column.scrollIntoView({block: "nearest", inline: "start"});
    this.input.focus({preventScroll: true});
  }
}

// A function that asks for a call of `draw` at the next frame, but leaves most of the time to others: a long answer takes
// longer to show than a token to come.
function drawnAtLeisure(draw) {
  const kPause = 4;  // times as long as the drawing
  let waiting = false, earliest = 0;
  const run = () => requestAnimationFrame((now) => {
    if (now < earliest) {
      setTimeout(run, earliest - now);
      return;
    }
    waiting = false;
    draw();
    const end = performance.now();
    earliest = end + kPause * (end - now);
  });
  return () => {
    if (!waiting) run();
    waiting = true;
  };
}

// An answer that was being made when the page was left.
function endAnswerOfBefore(message) {
  if (message?.role !== "assistant" || !(message.waiting || message.unfinished)) return;
  delete message.waiting;
  delete message.unfinished;
  message.failed = true;
  message.note = "The page was left before the end of this answer.";
}

// "used 640 tokens again, computed 12 in 0.05 s · wrote 37 at 41.0 tokens/s"
function timingsText(timings) {
  const {cache_n, prompt_n, prompt_ms, predicted_n, predicted_per_second} = timings;
  const read = cache_n > 0 ? `used ${count(cache_n)} again, computed ${count(prompt_n)}` : `computed ${count(prompt_n)}`;
  const wrote = `wrote ${count(predicted_n)}${predicted_n > 1 ? ` at ${rate(predicted_per_second)}` : ""}`;
  return `${read} in ${seconds(prompt_ms)} · ${wrote}`;
}
