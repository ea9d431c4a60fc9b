// All weights of a head as a table.

function drawTable() {
  const heads = headsOn();
  if (state.table !== "mean" && !state.heads[state.table]) state.table = "mean";
  const select = make(
    "select",
    { id: "table-head", onchange: () => { state.table = select.value === "mean" ? "mean" : Number(select.value); fill(); } },
    make("option", { value: "mean" }, "mean of the heads switched on"),
    ...heads.map((head) => make("option", { value: head }, `head ${head}`)),
  );
  select.value = String(state.table);
  const place = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of weights" });
  const fill = () => place.replaceChildren(tableOf(state.table));
  fill();
  find("view").replaceChildren(
    make("div", { class: "pick" }, make("label", { for: "table-head" }, "Weights of"), select), place,
  );
}

function tableOf(chosen) {
  const value = chosen === "mean" ? mean : (row, column) => weight(chosen, row, column);
  const name = chosen === "mean" ? `${state.kind}.${state.layer}, ${headsName()}` : headName(chosen);
  const heading = (side, index, scope) => make("th", { scope }, make("bdi", {}, spoken(tokensOf(side)[index])));
  const columns = tokensOf("column").map((_, column) => heading("column", column, "col"));
  const rows = tokensOf("row").map((_, row) =>
    make("tr", {}, heading("row", row, "row"), ...columns.map((_, column) => make("td", {}, exact(value(row, column))))),
  );
  return make(
    "table",
    {},
    make("caption", {}, `${name}: a row for each token that looks, a column for each that is looked at`),
    make("thead", {}, make("tr", {}, make("td", {}), ...columns)),
    make("tbody", {}, ...rows),
  );
}
