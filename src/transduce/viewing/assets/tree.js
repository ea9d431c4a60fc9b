// A parse tree on its side: the root on the left, a line for each word.

const LEVEL = 42;
const LINE = 24;
const nodeElements = [];

function drawTree() {
  if (!data.tree) return;
  const nodes = data.tree.nodes.map(([label, word, parent]) => ({ label, word, parent, depth: 0, children: [] }));
  // Parents come before their children.
  nodes.forEach((node, index) => {
    if (node.parent < 0) return;
    node.depth = nodes[node.parent].depth + 1;
    nodes[node.parent].children.push(index);
  });
  let line = 0;
  for (const node of nodes) if (!node.children.length) node.y = (line++ + 0.5) * LINE;
  for (const node of nodes.toReversed()) {
    if (!node.children.length) continue;
    const [first, last] = [nodes[node.children[0]], nodes[node.children.at(-1)]];
    node.y = (first.y + last.y) / 2;
  }
  const deepest = Math.max(...nodes.map((node) => node.depth));
  for (const node of nodes) node.x = (node.word === null ? node.depth : deepest) * LEVEL;
  const place = make("div", { class: "drawing" });
  const svg = make("svg", { width: deepest * LEVEL + 10, height: line * LINE, "aria-hidden": "true" });
  nodes.forEach((node, index) => {
    if (node.parent >= 0) {
      const parent = nodes[node.parent];
      const bend = parent.x + 26;
      svg.append(make("path", {
        d: `M${parent.x + 8},${parent.y} H${bend} V${node.y} H${node.x + 6}`,
        fill: "none", style: { stroke: "var(--rule)" },
      }));
    }
    place.append(nodeElement(node, index));
  });
  place.prepend(svg);
  place.style.minHeight = `${line * LINE}px`;
  find("tree").replaceChildren(
    make("h2", {}, "Parse tree"),
    make("div", { class: "scroll" }, place),
    make("details", {}, make("summary", {}, "In brackets"), make("pre", {}, data.tree.brackets)),
  );
  find("tree").hidden = false;
  find("main").classList.add("with-tree");
  const ends = nodeElements.map((element) => element.offsetLeft + element.offsetWidth);
  place.style.minWidth = `${Math.max(...ends)}px`;
}

// A button where a token of the target stands for the node, which it then holds.
function nodeElement(node, index) {
  const row = data.tree.rows.indexOf(index);
  const name = node.word === null
    ? [node.label || "()"]
    : [make("span", { class: "tag" }, node.label), " ", make("bdi", {}, node.word)];
  const style = { left: `${node.x}px`, top: `${node.y}px` };
  const element = row < 0
    ? make("span", { class: "node", style }, ...name)
    : make("button", { type: "button", style, "data-row": row, onclick: () => holdRow(row) }, ...name);
  nodeElements.push(element);
  return element;
}

function holdRow(row) {
  if (state.kind === "encoder") choose({ kind: "cross", layer: Math.min(state.layer, KINDS.cross.layers - 1) });
  if (state.view !== "lines") choose({ view: "lines" });
  hold({ side: "row", index: row });
  lists.row[row].scrollIntoView({ block: "nearest" });
}

function markTree() {
  if (!data.tree) return;
  const word = active();
  const isTarget = word !== null && word.side === "row" && state.kind !== "encoder";
  const node = isTarget ? data.tree.rows[word.index] : -1;
  nodeElements.forEach((element, index) => element.classList.toggle("active", index === node));
}
