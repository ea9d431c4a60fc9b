// Two columns of words with lines between them, as in Figures 3 to 5 of the paper.

const ROW = 26; // height of a word, as in the style sheet
const lists = { row: [], column: [] };
let drawing = null;

function drawLines() {
  const parts = ["row", "column"].map((side) => {
    const tokens = tokensOf(side);
    lists[side] = tokens.map((token, index) => wordItem(side, index, token, tokens.length));
    return make("ul", { class: `${side}s`, "aria-label": current()[`${side}s`] }, ...lists[side]);
  });
  const height = ROW * Math.max(lists.row.length, lists.column.length);
  drawing = make("svg", { height, "aria-hidden": "true" });
  const titles = ["row", "column"].map((side) =>
    make("h3", { class: `${side}s` }, current()[`${side}s`]),
  );
  const lines = make("div", { class: "lines" }, ...titles, parts[0], make("div", {}, drawing), parts[1]);
  lines.style.setProperty("--cell", data.heads > 8 ? "6px" : "9px");
  find("view").replaceChildren(make("div", { class: "scroll" }, lines));
  refreshLines();
}

function wordItem(side, index, token, count) {
  const word = { side, index };
  const button = make(
    "button",
    {
      type: "button",
      // One stop of the Tab key for a column; arrow keys move inside it.
      tabindex: index === (state.held?.side === side ? state.held.index : 0) ? "0" : "-1",
      "aria-label": `${spoken(token)}, ${index + 1} of ${count}`,
      "data-side": side,
      "data-index": index,
      title: token,
      onmouseenter: () => point(word),
      onmouseleave: () => point(null),
      onfocus: (event) => event.target.matches(":focus-visible") && point(word),
      onblur: () => point(null),
      onclick: () => hold(word),
      onkeydown: (event) => moveBetweenWords(event, word),
    },
    spelt(token),
  );
  return make("li", {}, button, make("span", { class: "strip", "aria-hidden": "true" }), make("span", { class: "mean", "aria-hidden": "true" }));
}

function moveBetweenWords(event, { side, index }) {
  const here = lists[side];
  const there = lists[other(side)];
  const moves = {
    ArrowUp: [here, index - 1],
    ArrowDown: [here, index + 1],
    ArrowLeft: [side === "column" ? there : here, index],
    ArrowRight: [side === "row" ? there : here, index],
    Home: [here, 0],
    End: [here, here.length - 1],
  };
  if (event.key === "Escape") return release();
  if (!(event.key in moves)) return;
  event.preventDefault();
  const [list, wanted] = moves[event.key];
  const next = list[Math.max(0, Math.min(wanted, list.length - 1))].querySelector("button");
  for (const item of list) item.querySelector("button").tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

// The lines, the strips of the word alone, and which words are marked, for the state as it is.
function refreshLines() {
  const word = active();
  const heads = headsOn();
  const width = drawing.clientWidth;
  const step = Math.min(3, 16 / heads.length);
  const places = (side) => (word?.side === side ? [word.index] : [...tokensOf(side).keys()]);
  const [rows, columns] = [places("row"), places("column")];
  const drawn = document.createDocumentFragment();
  let [all, missing] = [0, 0];
  heads.forEach((head, place) => {
    // Heads lie beside each other, so that none hides another.
    const shift = (place - (heads.length - 1) / 2) * step;
    for (const row of rows) {
      for (const column of columns) {
        const value = weight(head, row, column);
        all += value;
        // Of a word alone every line is there.
        if (value === 0 || (!word && value < state.least)) {
          missing += value;
          continue;
        }
        drawn.append(make("line", {
          x1: 0, x2: width, y1: (row + 0.5) * ROW + shift, y2: (column + 0.5) * ROW + shift,
          "stroke-width": (0.4 + 3.6 * value).toFixed(2), "stroke-linecap": "round",
          "stroke-opacity": (0.03 + 0.97 * value).toFixed(3), style: { stroke: colour(head) },
          "data-head": head, "data-row": row, "data-column": column, "data-weight": exact(value),
        }));
      }
    }
  });
  drawing.replaceChildren(drawn);
  const part = all ? (100 * missing) / all : 0;
  find("left-out").textContent = word
    ? "A word alone has all of its lines."
    : `Lines too faint to be drawn carry ${part.toFixed(1)}% of the attention; a word alone has all of its lines.`;
  for (const side of ["row", "column"]) {
    lists[side].forEach((item, index) => markWord(item, side, index, word, heads));
  }
}

function markWord(item, side, index, word, heads) {
  const alone = word !== null && word.side === side && word.index === index;
  const held = state.held?.side === side && state.held.index === index;
  item.classList.toggle("active", alone);
  item.querySelector("button").setAttribute("aria-pressed", String(held));
  const [, strip, average] = item.children;
  const met = word !== null && word.side !== side;
  const [row, column] = met ? cell(word.side, word.index, index) : [0, 0];
  strip.replaceChildren(...heads.map((head) =>
    make("span", { style: { background: colour(head), opacity: met ? weight(head, row, column) : 0 } }),
  ));
  const value = met ? mean(row, column) : 0;
  average.textContent = value >= 0.005 ? value.toFixed(2) : "";
}
