// Words and numbers for people, and the text of answers as elements.

const kNumber = new Intl.NumberFormat("en");

export const count = (n) => kNumber.format(n);
export const tokens = (n) => `${count(n)} ${n === 1 ? "token" : "tokens"}`;

export function seconds(ms) {
  if (ms < 99.5) return `${ms < 9.95 ? ms.toFixed(1) : Math.round(ms)} ms`;
  return ms < 9950 ? `${(ms / 1000).toFixed(ms < 995 ? 2 : 1)} s` : `${Math.round(ms / 1000)} s`;
}

export const rate = (perSecond) => `${perSecond < 99.5 ? perSecond.toFixed(1) : count(Math.round(perSecond))} tokens/s`;

export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; n >= 1024 && unit + 1 < units.length; ++unit) n /= 1024;
  return `${n < 10 && unit > 0 ? n.toFixed(1) : Math.round(n)} ${units[unit]}`;
}

export function parameters(n) {
  if (n >= 1e9) return `${(n / 1e9).toFixed(n < 1e10 ? 1 : 0)} B parameters`;
  if (n >= 1e6) return `${Math.round(n / 1e6)} M parameters`;
  return `${count(n)} parameters`;
}

export function element(name, className, ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

// `code`, **bold** and plain text of one paragraph.
function inline(text) {
  return text.split(/(`[^`\n]+`|\*\*[^*\n]+\*\*)/).filter((part) => part !== "").map((part) => {
    if (part.length > 2 && part.startsWith("`") && part.endsWith("`")) return element("code", "", part.slice(1, -1));
    if (part.length > 4 && part.startsWith("**") && part.endsWith("**")) return element("strong", "", part.slice(2, -2));
    return part;
  });
}

function prose(text) {
  return text.split(/\n{2,}/).filter((paragraph) => paragraph.trim() !== "").map((paragraph) => {
    const heading = /^#{1,6} +([^\n]+)$/.exec(paragraph.trim());
    return heading ? element("p", "", element("strong", "", heading[1])) : element("p", "", ...inline(paragraph.replace(/^\n+|\n+$/g, "")));
  });
}

// Paragraphs and fenced blocks of code; everything else of an answer is shown as it is.
export function formatted(text) {
  const parts = [];
  let open = null;  // lines of a block of code
  let plain = [];
  for (const line of text.split("\n")) {
    if (!/^ {0,3}```/.test(line)) {
      (open ?? plain).push(line);
    } else if (open !== null) {
      parts.push(element("pre", "", element("code", "", open.join("\n"))));
      open = null;
    } else {
      parts.push(...prose(plain.join("\n")));
      plain = [];
      open = [];
    }
  }
  if (open !== null) parts.push(element("pre", "", element("code", "", open.join("\n"))));
  parts.push(...prose(plain.join("\n")));
  return parts;
}
