// Requests to the server that this page came from.

const kKeyName = "bankmld-key";
let askForKey = null;  // set by main: (complaint) => promise of a key, or null if the user doesn't give one
let asking = null;     // one question at a time, whatever the number of requests that need the answer

export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;  // 0: no answer at all
  }
}

export function onKeyNeeded(ask) {
  askForKey = ask;
}

function send(path, options) {
  const headers = new Headers(options.headers);
  const key = sessionStorage.getItem(kKeyName);
  if (key !== null) headers.set("Authorization", `Bearer ${key}`);
  return fetch(new URL(path, document.baseURI), {...options, headers, cache: "no-store"});
}

async function failure(response) {
  const text = await response.text();
  try {
    return new ApiError(JSON.parse(text).error.message, response.status);
  } catch {
    return new ApiError(text || `The server answered with status ${response.status}.`, response.status);
  }
}

// Asks the user; false if that gives no key.
export async function enterKey(complaint = "") {
  asking ??= askForKey(complaint).finally(() => (asking = null));
  const key = await asking;
  if (key === null) return false;
  sessionStorage.setItem(kKeyName, key);
  return true;
}

// `used`: the key that has just been refused, null if there was none.
async function renewKey(used) {
  if (sessionStorage.getItem(kKeyName) !== used) return true;  // another request has got one meanwhile
  return enterKey(used === null ? "" : "The server refused this key.");
}

// The response, if its status is good; else throws ApiError. `quiet`: a missing key is an error, not a question.
async function request(path, options = {}, quiet = false) {
  for (;;) {
    const used = sessionStorage.getItem(kKeyName);
    let response;
    try {
      response = await send(path, options);
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError("The server can't be reached.", 0);
    }
    if (response.ok) return response;
    if (response.status !== 401 || quiet || !(await renewKey(used))) throw await failure(response);
  }
}

export async function getJson(path, {quiet = false} = {}) {
  return (await request(path, {}, quiet)).json();
}

// The events of a stream (docs/http-api.md 12), as they come. Throws ApiError for an error event and for a stream that
// ends without its last event.
export async function* postStream(path, body, signal) {
  const headers = {"Content-Type": "application/json"};
  const response = await request(path, {method: "POST", headers, body: JSON.stringify(body), signal});
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    let part;
    try {
      part = await reader.read();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      part = {done: true};
    }
    if (part.done) throw new ApiError("The connection was lost.", 0);
    const events = (rest + part.value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      if (!event.startsWith("data: ")) continue;  // a comment that keeps the connection alive
      const data = event.slice("data: ".length);
      if (data === "[DONE]") return;
      const value = JSON.parse(data);
      if (value.error) throw new ApiError(value.error.message, value.error.code ?? 500);
      yield value;
    }
  }
}
