// A matrix of weights for each head that is on, its exact values under the pointer.

const FONT = "12px system-ui, sans-serif";
const LABEL = 120; // width of the longest label that is written whole

function drawMatrices() {
  const figures = headsOn().map((head) => {
    const canvas = make("canvas", {
      tabindex: "0",
      role: "application",
      "aria-roledescription": "matrix",
      "aria-label": `${headName(head)}: arrow keys read its weights; the table has them all`,
      "data-head": head,
    });
    const matrix = { head, canvas, at: null };
    paint(matrix);
    const leave = () => moveTo(matrix, null);
    canvas.addEventListener("mousemove", (event) => moveTo(matrix, cellUnder(matrix, event), event));
    canvas.addEventListener("mouseleave", leave);
    canvas.addEventListener("blur", leave);
    canvas.addEventListener("keydown", (event) => moveBetweenCells(matrix, event));
    const swatch = make("span", { class: "swatch", style: { "--head": "" } });
    swatch.style.setProperty("--head", colour(head));
    return make("figure", {}, make("figcaption", {}, swatch, headName(head)), canvas);
  });
  find("view").replaceChildren(make("div", { class: "matrices" }, ...figures));
}

function paint(matrix) {
  const { canvas, head, at } = matrix;
  const [rows, columns] = [tokensOf("row"), tokensOf("column")];
  const context = canvas.getContext("2d");
  context.font = FONT;
  const widest = (tokens) =>
    Math.min(LABEL, Math.max(...tokens.map((token) => context.measureText(spoken(token)).width)));
  const size = rows.length * columns.length > 6400 ? 14 : 20;
  const [left, top] = [Math.ceil(widest(rows)) + 10, Math.ceil(widest(columns)) + 10];
  Object.assign(matrix, { left, top, size });
  const [width, height] = [left + columns.length * size + 1, top + rows.length * size + 1];
  const ratio = window.devicePixelRatio || 1;
  [canvas.width, canvas.height] = [width * ratio, height * ratio];
  [canvas.style.width, canvas.style.height] = [`${width}px`, `${height}px`];
  context.scale(ratio, ratio);
  const style = getComputedStyle(document.documentElement);
  const named = (name) => style.getPropertyValue(name).trim();
  context.font = FONT;
  context.textBaseline = "middle";
  const label = (side, index) => {
    context.fillStyle = at && at[side] === index ? named("--accent") : named("--ink");
    context.fillText(shortened(context, spoken(tokensOf(side)[index])), 0, 0);
  };
  context.textAlign = "right";
  rows.forEach((_, row) => {
    context.save();
    context.translate(left - 5, top + (row + 0.5) * size);
    label("row", row);
    context.restore();
  });
  context.textAlign = "left";
  columns.forEach((_, column) => {
    context.save();
    context.translate(left + (column + 0.5) * size, top - 5);
    context.rotate(-Math.PI / 2);
    label("column", column);
    context.restore();
  });
  matrix.cells ??= cells(state.kind, state.layer, head);
  context.imageSmoothingEnabled = false;
  context.drawImage(matrix.cells, left, top, columns.length * size, rows.length * size);
  context.strokeStyle = named("--rule");
  context.lineWidth = 1;
  context.beginPath();
  for (let row = 0; row <= rows.length; row++) {
    context.moveTo(left, top + row * size + 0.5);
    context.lineTo(left + columns.length * size, top + row * size + 0.5);
  }
  for (let column = 0; column <= columns.length; column++) {
    context.moveTo(left + column * size + 0.5, top);
    context.lineTo(left + column * size + 0.5, top + rows.length * size);
  }
  context.stroke();
  if (at) {
    context.strokeStyle = named("--ink");
    context.lineWidth = 2;
    context.strokeRect(left + at.column * size, top + at.row * size, size, size);
  }
}

function shortened(context, text) {
  if (context.measureText(text).width <= LABEL) return text;
  let kept = [...text];
  while (kept.length && context.measureText(`${kept.join("")}\u2026`).width > LABEL) kept.pop();
  return `${kept.join("")}\u2026`;
}

// The weights of a head, a pixel each: its colour, as strong as the weight is large.
function cells(kind, layer, head) {
  const { tokens } = KINDS[kind];
  const [rows, columns] = [tokens.row.length, tokens.column.length];
  const canvas = make("canvas", { width: columns, height: rows, "aria-hidden": "true" });
  const context = canvas.getContext("2d");
  const [red, green, blue] = channels(head);
  const image = context.createImageData(columns, rows);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const alpha = Math.round(255 * weightOf(kind, layer, head, row, column));
      image.data.set([red, green, blue, alpha], 4 * (row * columns + column));
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

// Red, green and blue of the head's colour, which the style sheet has a part in.
function channels(head) {
  const probe = make("span", { style: { color: colour(head) } });
  document.body.append(probe);
  const context = make("canvas", { width: 1, height: 1 }).getContext("2d");
  context.fillStyle = getComputedStyle(probe).color;
  probe.remove();
  context.fillRect(0, 0, 1, 1);
  return context.getImageData(0, 0, 1, 1).data;
}

function cellUnder({ left, top, size }, event) {
  const [row, column] = [(event.offsetY - top) / size, (event.offsetX - left) / size].map(Math.floor);
  const inside = row >= 0 && column >= 0 && row < tokensOf("row").length && column < tokensOf("column").length;
  return inside ? { row, column } : null;
}

function moveBetweenCells(matrix, event) {
  const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  if (event.key === "Escape") return moveTo(matrix, null);
  if (!(event.key in moves)) return;
  event.preventDefault();
  const within = (value, side) => Math.max(0, Math.min(value, tokensOf(side).length - 1));
  const [down, right] = matrix.at ? moves[event.key] : [0, 0];
  const { row, column } = matrix.at ?? { row: 0, column: 0 };
  moveTo(matrix, { row: within(row + down, "row"), column: within(column + right, "column") });
}

function moveTo(matrix, at, event = null) {
  const tip = find("tip");
  tip.hidden = at === null || event === null;
  if (at?.row === matrix.at?.row && at?.column === matrix.at?.column) {
    if (!tip.hidden) placeTip(event);
    return;
  }
  matrix.at = at;
  paint(matrix);
  if (at === null) return say();
  const { row, column } = at;
  const parts = () => [
    quoted("row", row), " looks at ", quoted("column", column), `: ${exact(weight(matrix.head, row, column))}`,
  ];
  find("readout").replaceChildren(`${headName(matrix.head)}: `, ...parts());
  tip.replaceChildren(...parts());
  if (!tip.hidden) placeTip(event);
}

function placeTip(event) {
  const tip = find("tip");
  tip.style.left = `${Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${Math.min(event.clientY + 18, window.innerHeight - tip.offsetHeight - 8)}px`;
}
