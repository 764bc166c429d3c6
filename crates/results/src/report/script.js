"use strict";
// Shows the values under the pointer. Everything can be read without it.
(() => {
  const digits = (v) => {
    const a = Math.abs(v);
    const d = a >= 99.95 || a === 0 ? 0 : a >= 9.995 ? 1 : a >= 0.9995 ? 2 : a >= 0.0995 ? 3 : 4;
    return String(Number(v.toFixed(d)));
  };
  const scaled = (v, base, names) => {
    let at = 0;
    while (Math.abs(v) >= base * 0.9995 && at + 1 < names.length) { v /= base; at += 1; }
    return digits(v) + names[at];
  };
  const two = (n) => String(n).padStart(2, "0");
  const bytes = [" B", " KiB", " MiB", " GiB", " TiB"];
  const format = {
    count: (v) => scaled(v, 1000, ["", " k", " M", " G", " T"]),
    elapsed: (v) => v < 120 ? digits(v) + " s" : v < 7200 ? `${Math.floor(v / 60)}:${two(Math.floor(v % 60))} min`
      : `${Math.floor(v / 3600)}:${two(Math.floor(v / 60) % 60)} h`,
    micros: (v) => v >= 999500 ? digits(v / 1e6) + " s" : v >= 999.5 ? digits(v / 1e3) + " ms" : digits(v) + " µs",
    bytes: (v) => scaled(v, 1024, bytes),
    rate: (v) => scaled(v, 1024, bytes) + "/s",
    share: (v) => digits(v * 100) + " %",
    percentile: (v) => "p" + Number((v * 100).toFixed(4)),
    factor: digits,
  };
  const tip = document.getElementById("tip");
  const nearest = (places, place) => {
    let low = 0, high = places.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (places[middle] < place) low = middle; else high = middle;
    }
    return place - places[low] < places[high] - place ? low : high;
  };
  const show = (event, svg, data, frame, cross) => {
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
    if (x < frame.left - 4 || x > frame.right + 4) return hide(cross);
    const at = nearest(data.places, (x - frame.left) / (frame.right - frame.left));
    const line = frame.left + data.places[at] * (frame.right - frame.left);
    cross.setAttribute("x1", line);
    cross.setAttribute("x2", line);
    cross.removeAttribute("visibility");
    tip.textContent = format[data.xUnit](data.xs[at]);
    for (const series of data.series) {
      const value = series.values[at];
      const row = document.createElement("div");
      const colour = document.createElement("i");
      colour.style.background = `var(--c${series.colour})`;
      row.append(colour, `${series.name}  ${value === null ? "–" : format[data.yUnit](value)}`);
      tip.append(row);
    }
    tip.hidden = false;
    const left = event.clientX + 16 + tip.offsetWidth > innerWidth ? event.clientX - 16 - tip.offsetWidth : event.clientX + 16;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${Math.min(event.clientY + 12, innerHeight - tip.offsetHeight - 4)}px`;
  };
  const hide = (cross) => {
    tip.hidden = true;
    cross.setAttribute("visibility", "hidden");
  };
  let charts = 0;
  for (const svg of document.querySelectorAll("svg[data-chart]")) {
    charts += 1;
    const data = JSON.parse(svg.parentNode.querySelector("script").textContent);
    const probe = svg.querySelector(".probe");
    if (!data || !probe) continue;
    const frame = Object.fromEntries(Object.entries(probe.dataset).map(([name, value]) => [name, Number(value)]));
    const cross = document.createElementNS(svg.namespaceURI, "line");
    cross.setAttribute("class", "cross");
    cross.setAttribute("y1", frame.top);
    cross.setAttribute("y2", frame.bottom);
    cross.setAttribute("visibility", "hidden");
    probe.append(cross);
    svg.addEventListener("pointermove", (event) => show(event, svg, data, frame, cross));
    svg.addEventListener("pointerleave", () => hide(cross));
  }
  document.documentElement.dataset.charts = charts;
})();
