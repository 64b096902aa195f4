// The page: its charts, and what holds for all of them.

function start() {
  const { entries, axes, charts, bands } = JSON.parse(document.getElementById("data").textContent);
  const find = (id) => document.getElementById(id);
  const hasSeeds = charts.some((lines) => lines.some((line) => line.seeds.length));
  const hasBands = charts.some((lines) => lines.some((line) => line.low));
  const view = {
    axis: Object.keys(axes)[0],
    names: axes,
    spread: entries.length === 1 && hasSeeds ? "seeds" : "band",
    hidden: new Set(),
    range: null,
    setRange(range) {
      view.range = range;
      find("whole").hidden = range === null;
      redraw();
    },
  };
  const drawn = [...document.querySelectorAll(".plot")].map(
    (plot) => new Chart(plot, charts[Number(plot.dataset.chart)], entries, view),
  );
  // Charts in a closed part of the page wait until it is opened: there may be many.
  const redraw = () => drawn.filter((chart) => chart.plot.checkVisibility()).forEach((chart) => chart.draw());

  find("legend").append(
    ...entries.map((name, entry) => {
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-pressed", "true");
      button.append(swatch(entry), name);
      button.addEventListener("click", () => {
        const isHidden = !view.hidden.has(entry);
        if (isHidden) view.hidden.add(entry);
        else view.hidden.delete(entry);
        button.setAttribute("aria-pressed", String(!isHidden));
        redraw();
      });
      return button;
    }),
  );
  find("legend").hidden = entries.length === 1;

  const choose = (select, options, chosen, change) => {
    for (const [value, text] of Object.entries(options)) select.append(new Option(text, value, false, value === chosen));
    select.addEventListener("change", () => {
      change(select.value);
      redraw();
    });
  };
  choose(find("axis"), axes, view.axis, (axis) => {
    view.axis = axis;
    view.range = null;
    find("whole").hidden = true;
  });
  const spreads = { ...(hasBands && { band: bands }), ...(hasSeeds && { seeds: "each seed" }), none: "none" };
  choose(find("spread"), spreads, view.spread, (spread) => (view.spread = spread));
  find("spread-label").hidden = !hasBands && !hasSeeds;
  find("whole").addEventListener("click", () => view.setRange(null));
  find("controls").hidden = false;

  const watcher = new ResizeObserver(redraw);
  for (const chart of drawn) watcher.observe(chart.plot);
  document.addEventListener("toggle", redraw, true);
  redraw();
  document.documentElement.dataset.ready = "";
}

start();
