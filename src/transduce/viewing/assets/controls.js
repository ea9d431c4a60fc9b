// What is on the page besides the view, and what follows from what is chosen.

const VIEWS = { lines: ["Lines", drawLines], matrices: ["Matrices", drawMatrices], table: ["Table", drawTable] };

// Changes the state and draws everything anew.
function choose(change) {
  Object.assign(state, { held: null, pointed: null }, change);
  draw();
}

function hold(word) {
  const same = state.held?.side === word.side && state.held.index === word.index;
  Object.assign(state, { held: same ? null : word, pointed: null });
  refresh();
}

function release() {
  Object.assign(state, { held: null, pointed: null });
  refresh();
}

function point(word) {
  state.pointed = word;
  refresh();
}

function refresh() {
  refreshLines();
  say();
  markTree();
}

// Says in words what the lines of the word alone show.
function say() {
  const word = active();
  const readout = find("readout");
  if (state.view === "table") return readout.replaceChildren("The table has every weight.");
  if (state.view === "matrices") return readout.replaceChildren("Point at a cell for its weight, or move to a matrix with Tab and inside it with the arrow keys.");
  if (word === null) {
    return readout.replaceChildren(
      "Point at a word to see its lines alone, or move to it with Tab and the arrow keys; a click or Enter holds it, Escape lets it go.",
    );
  }
  const { side, index } = word;
  const found = tokensOf(other(side)).map((_, place) => [mean(...cell(side, index, place)), place]);
  found.sort(([one], [two]) => two - one);
  const parts = found.slice(0, 5).filter(([value]) => value >= 0.0005).flatMap(([value, place], number) => [
    number ? ", " : " ", quoted(other(side), place), ` ${value.toFixed(3)}`,
  ]);
  const verb = side === "row" ? " looks most at" : " is looked at most by";
  readout.replaceChildren(quoted(side, index), ...(parts.length ? [verb, ...parts] : [": nothing"]), ` (${headsName()})`);
}

function pressed(name, on, attributes, ...children) {
  return make("button", { type: "button", "aria-label": name, "aria-pressed": String(on), ...attributes }, ...children);
}

// Replaces the children of `place`; the focus stays with the control of the same `data-key`.
function replace(place, ...children) {
  const key = place.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  place.replaceChildren(...children);
  if (key) place.querySelector(`[data-key="${key}"]`)?.focus();
}

function drawControls() {
  const kinds = Object.entries(KINDS).map(([key, kind]) =>
    pressed(kind.name, key === state.kind, {
      "data-key": key,
      onclick: () => choose({ kind: key, layer: Math.min(state.layer, kind.layers - 1) }),
    }, kind.name));
  replace(find("kinds"), ...kinds);
  const views = Object.entries(VIEWS).map(([key, [name]]) =>
    pressed(name, key === state.view, { "data-key": key, onclick: () => choose({ view: key }) }, name));
  replace(find("views"), ...views);
  const heads = state.heads.map((on, head) => {
    const swatch = make("span", { class: "swatch" });
    const masked = data.masked.includes(headName(head));
    const button = pressed(`Head ${head}${masked ? ", masked" : ""}`, on, {
      class: masked ? "masked" : null,
      "data-key": `head-${head}`, "data-head": head, onclick: () => switchHeads((was, number) => (number === head ? !was : was)),
    }, swatch, String(head));
    button.style.setProperty("--head", colour(head));
    return button;
  });
  replace(find("heads"), ...heads);
  replace(find("layers"), ...Array.from({ length: current().layers }, (_, layer) => layerRow(layer)));
  find("least-value").textContent = state.least.toFixed(2);
  find("least-section").hidden = state.view !== "lines";
  const masked = data.masked.filter((name) => name.startsWith(`${state.kind}.${state.layer}.`));
  find("stage-title").textContent = `${current().name}, layer ${state.layer}`;
  find("caption").textContent = current().caption + (masked.length ? ` Masked here, so that nothing comes of it: ${masked.join(", ")}.` : "");
}

// Keeps the word that is held: the same word through other heads.
function switchHeads(change) {
  state.heads = state.heads.map(change);
  draw();
}

function layerRow(layer) {
  const here = layer === state.layer;
  const side = Math.min(40, Math.floor(200 / data.heads) - 4);
  const thumbs = state.heads.map((on, head) => {
    const name = `${state.kind}.${layer}.${head}`;
    const masked = data.masked.includes(name);
    const button = pressed(`${name} alone${masked ? ", masked" : ""}`, here && on, {
      class: masked ? "thumb masked" : "thumb",
      title: masked ? `${name}, masked` : name,
      "data-key": name,
      onclick: () => choose({ layer, heads: state.heads.map((_, number) => number === head) }),
    }, cells(state.kind, layer, head));
    Object.assign(button.style, { width: `${side}px`, height: `${side}px` });
    return button;
  });
  const all = pressed(`Layer ${layer}`, here, {
    "data-key": `layer-${layer}`, onclick: () => choose({ layer, heads: state.heads.map(() => true) }),
  }, String(layer));
  return make("div", { class: "layer" }, all, ...thumbs);
}

function draw() {
  find("tip").hidden = true;
  drawControls();
  VIEWS[state.view][1]();
  say();
  markTree();
}

function begin() {
  for (const [term, text] of data.about) {
    find("about").append(make("dt", {}, term), make("dd", {}, make("bdi", {}, text)));
  }
  find("main").hidden = false;
  find("all-heads").addEventListener("click", () => switchHeads(() => true));
  find("no-heads").addEventListener("click", () => switchHeads(() => false));
  find("least").value = state.least;
  find("least").addEventListener("input", (event) => {
    state.least = Number(event.target.value);
    find("least-value").textContent = state.least.toFixed(2);
    refresh();
  });
  drawTree();
  draw();
  window.addEventListener("resize", () => state.view === "lines" && refreshLines());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}

begin();
