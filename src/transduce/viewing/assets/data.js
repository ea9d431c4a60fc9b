// What is shown, and how it is named.

const data = JSON.parse(document.getElementById("data").textContent);

const KINDS = {
  encoder: {
    name: "Encoder self-attention",
    rows: "Source: looks",
    columns: "Source: looked at",
    caption: "How the encoder reads: each source token (left) looks at source tokens (right).",
  },
  decoder: {
    name: "Decoder self-attention",
    rows: "Target: chosen",
    columns: "Target: read",
    caption:
      "To choose a token (left), the decoder looks back at what it has read (right): <s>, then the tokens before.",
  },
  cross: {
    name: "Cross-attention",
    rows: "Target: chosen",
    columns: "Source: looked at",
    caption: "To choose a token (left), the decoder looks at source tokens (right).",
  },
};

for (const [key, kind] of Object.entries(KINDS)) {
  const given = data.kinds[key];
  kind.tokens = { row: data.tokens[given.rows], column: data.tokens[given.columns] };
  kind.layers = given.layers;
  // float32, little-endian, [layer, head, row, column].
  const bytes = Uint8Array.from(atob(given.weights), (character) => character.charCodeAt(0));
  kind.weights = new Float32Array(bytes.buffer);
}

const state = {
  kind: data.start.kind,
  layer: data.start.layer,
  heads: Array.from({ length: data.heads }, (_, head) => data.start.heads.includes(head)),
  view: "lines",
  least: 0.05,
  held: null, // a word that was clicked: { side, index }
  pointed: null, // a word under the pointer or the focus
  table: "mean",
};

const current = () => KINDS[state.kind];
const tokensOf = (side) => current().tokens[side];
const headsOn = () => state.heads.flatMap((on, head) => (on ? [head] : []));
const active = () => state.pointed ?? state.held;
const other = (side) => (side === "row" ? "column" : "row");

function weightOf(kind, layer, head, row, column) {
  const { tokens, weights } = KINDS[kind];
  const [rows, columns] = [tokens.row.length, tokens.column.length];
  return weights[((layer * data.heads + head) * rows + row) * columns + column];
}

const weight = (head, row, column) => weightOf(state.kind, state.layer, head, row, column);

function mean(row, column) {
  const heads = headsOn();
  const sum = heads.reduce((total, head) => total + weight(head, row, column), 0);
  return heads.length ? sum / heads.length : 0;
}

// Row and column where the word at `index` of `side` meets the word at `place` of the other side.
const cell = (side, index, place) => (side === "row" ? [index, place] : [place, index]);

const colour = (head) =>
  `oklch(var(--head-light) var(--head-chroma) ${Math.round((head * 360) / data.heads + 25) % 360})`;

function exact(value) {
  if (value === 0) return "0";
  return value < 0.0001 ? value.toExponential(3) : value.toFixed(6);
}

const headName = (head) => `${state.kind}.${state.layer}.${head}`;

function headsName() {
  const heads = headsOn();
  if (heads.length === 0) return "no head is switched on";
  return heads.length === 1 ? `head ${heads[0]}` : `mean of heads ${heads.join(", ")}`;
}

const spoken = (token) => token.replaceAll("\u2581", " ").trim() || "space";

// A token in quotes, kept apart from the direction of the text around it; numbered if it is not
// the only one of its spelling.
function quoted(side, index) {
  const tokens = tokensOf(side);
  const twice = tokens.filter((token) => token === tokens[index]).length > 1;
  const number = twice ? ` (${index + 1})` : "";
  return make("span", {}, "\u201c", make("bdi", {}, spoken(tokens[index])), `\u201d${number}`);
}

// An element with attributes and children; text is always text, never markup.
function make(name, attributes = {}, ...children) {
  const svg = ["svg", "line", "path"].includes(name);
  const element = svg
    ? document.createElementNS("http://www.w3.org/2000/svg", name)
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "style") Object.assign(element.style, value);
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== false && value !== null) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

// A token with the mark of a space before it made faint.
function spelt(token) {
  const part = make("bdi");
  const marks = token.match(/^\u2581*/)[0];
  if (marks) part.append(make("span", { class: "space" }, marks));
  part.append(token.slice(marks.length));
  return part;
}

const find = (id) => document.getElementById(id);
