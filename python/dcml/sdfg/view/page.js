// What the page of a graph does: pan, zoom, fold, search, tell.
// The one idea: folding shrinks a box and then takes out of the box around it the strips that nothing occupies any more.
// Must not know: how graphs are laid out, or what nodes mean.
"use strict";
(() => {
  const svg = document.getElementById("graph"), root = document.getElementById("root"), tip = document.getElementById("tip");
  const told = JSON.parse(document.getElementById("told").textContent);
  const GAP = 26, NEAR = 0.42;
  const above = () => document.querySelector("header").getBoundingClientRect().bottom + 12;  // what the header covers

  // ---- boxes: where each was laid out, and where it stands now ----
  const boxes = new Map();  // group -> {group, parent, items, edges, at: laid out, now: [x, y, width, height], folded: [width, height]}
  const edgesOf = new Map();  // key of an item -> its edges
  const pairs = /(-?[\d.]+) (-?[\d.]+)/g;

  function read(group, parent) {
    const [x, y] = group.getAttribute("transform").match(/-?[\d.]+/g).map(Number);
    const frame = group.querySelector(":scope > .frame"), inner = group.querySelector(":scope > .inner");
    const size = group.dataset.w ? [+group.dataset.w, +group.dataset.h] : null;
    const shape = size ? null : group.querySelector(":scope > .shape");
    const box = {group, parent, frame, inner, items: [], edges: [], isFolded: false,
                 at: [x, y, ...(size || [+shape.getAttribute("width"), +shape.getAttribute("height")])]};
    box.now = box.at.slice();
    if (group.dataset.f) box.folded = group.dataset.f.split(" ").map(Number);
    boxes.set(group, box);
    return box;
  }
  (function readAll() {
    const left = [[root.querySelector(".box"), null]];
    while (left.length) {
      const [group, parent] = left.pop(), box = read(group, parent);
      if (parent) parent.items.push(box);
      if (!box.inner) continue;
      for (const child of box.inner.children) {
        if (child.classList.contains("box")) { left.push([child, box]); continue; }
        const path = child.querySelector("path"), label = child.querySelector("text");
        const edge = {group: child, path, label, d: path.getAttribute("d"), source: child.dataset.s, target: child.dataset.t, box,
                      at: label && [+label.getAttribute("x"), +label.getAttribute("y")]};
        box.edges.push(edge);
        for (const key of [edge.source, edge.target]) if (key) (edgesOf.get(key) || edgesOf.set(key, []).get(key)).push(edge);
      }
    }
  })();
  const top = boxes.get(root.querySelector(".box"));

  // ---- folding ----
  // A function that takes out what lies between the intervals, but for GAP (or what was there, if that is less).
  function squeezed(intervals, end) {
    intervals.sort((a, b) => a[0] - b[0]);
    const kept = [];
    for (const [from, to] of intervals) {
      const last = kept[kept.length - 1];
      if (last && from <= last[1]) last[1] = Math.max(last[1], to); else kept.push([from, to]);
    }
    const knots = [[0, 0]];  // piecewise linear: [before, after]
    let after = 0, at = 0;
    for (const [from, to] of [...kept, [end, end]]) {
      after += Math.min(from - at, GAP * 1.6);
      knots.push([from, after]);
      after += to - from; at = to;
      knots.push([to, after]);
    }
    return value => {
      let low = 0, high = knots.length - 1;
      while (low + 1 < high) { const middle = (low + high) >> 1; if (knots[middle][0] <= value) low = middle; else high = middle; }
      const [a, fa] = knots[low], [b, fb] = knots[high];
      return b > a ? fa + (value - a) * (fb - fa) / (b - a) : value > b ? fb + value - b : fa;
    };
  }

  function settle(box) {  // places the items of a box by their present sizes, and then the box in its parent
    for (; box; box = box.parent) {
      if (box.isFolded) { box.now[2] = box.folded[0]; box.now[3] = box.folded[1]; resize(box); continue; }
      const changed = box.items.some(item => item.now[2] !== item.at[2] || item.now[3] !== item.at[3]);
      const x = changed ? squeezed(box.items.map(item => spanX(item)), box.at[2]) : same;
      const y = changed ? squeezed([[0, 26], ...box.items.map(item => [item.at[1], item.at[1] + item.now[3]])], box.at[3]) : same;
      for (const item of box.items) {
        item.now[0] = x(spanX(item)[0]); item.now[1] = y(item.at[1]);
        item.group.setAttribute("transform", `translate(${item.now[0].toFixed(1)} ${item.now[1].toFixed(1)})`);
      }
      for (const edge of box.edges) bend(edge, x, y);
      const head = box.folded ? box.folded[0] : 0;
      box.now[2] = Math.max(x(box.at[2]), head); box.now[3] = y(box.at[3]);
      resize(box);
    }
  }
  const same = value => value;
  const spanX = item => {  // shrinks towards its middle
    const aside = (item.at[2] - item.now[2]) / 2;
    return [item.at[0] + aside, item.at[0] + aside + item.now[2]];
  };
  function resize(box) {
    if (!box.frame) return;
    const [, , width, height] = box.now, bar = box.group.querySelector(":scope > .head > .bar"), foot = box.group.querySelector(":scope > .foot");
    box.frame.setAttribute("width", width); box.frame.setAttribute("height", height);
    bar.setAttribute("d", `M0 26V8Q0 0 8 0H${width - 8}Q${width} 0 ${width} 8V26z`);
    if (foot) {
      foot.setAttribute("d", `M0 0H${width}Q${width} 8 ${width - 8} 8H8Q0 8 0 0z`);
      foot.setAttribute("transform", `translate(0 ${height - 8})`);
    }
  }
  const byKey = new Map();
  for (const box of boxes.values()) if (!box.group.classList.contains("again")) byKey.set(box.group.dataset.k, box);
  function bend(edge, x, y) {
    const points = [...edge.d.matchAll(pairs)].map(pair => [x(+pair[1]), y(+pair[2])]);
    const source = byKey.get(edge.source), target = byKey.get(edge.target);
    if (source && source.parent === edge.box && source.inner) anchor(points, 0, source, source.now[1] + source.now[3]);
    if (target && target.parent === edge.box && target.inner) anchor(points, points.length - 1, target, target.now[1]);
    let k = 0;
    edge.path.setAttribute("d", edge.d.replace(pairs, () => { const [px, py] = points[k++]; return `${px.toFixed(1)} ${py.toFixed(1)}`; }));
    if (edge.label) { edge.label.setAttribute("x", x(edge.at[0])); edge.label.setAttribute("y", y(edge.at[1])); }
  }
  function anchor(points, end, box, y) {  // an edge ends at the border of a box, whatever its size
    const x = Math.min(Math.max(points[end][0], box.now[0] + 10), box.now[0] + box.now[2] - 10), next = end ? end - 1 : 1;
    points[next] = [x, end ? Math.min(points[next][1], y) : Math.max(points[next][1], y)];
    points[end] = [x, y];
  }
  function fold(box, yes) {
    box.isFolded = yes;
    box.group.classList.toggle("folded", yes);
  }
  function foldAll(yes) {
    const maps = [...boxes.values()].filter(box => box.folded && box.inner && (yes ? !box.group.classList.contains("state") : true));
    for (const box of maps) fold(box, yes);
    for (const box of [...boxes.values()].reverse()) if (box.inner) one(box);
  }
  function one(box) { const parent = box.parent; box.parent = null; settle(box); box.parent = parent; }

  // ---- pan and zoom ----
  let view = {x: 0, y: 0, scale: 1}, pending = false;
  function show() {
    if (pending) return;
    pending = true;
    requestAnimationFrame(() => {
      pending = false;
      root.setAttribute("transform", `translate(${view.x} ${view.y}) scale(${view.scale})`);
      svg.classList.toggle("far", view.scale < NEAR);
    });
  }
  function zoom(factor, cx = innerWidth / 2, cy = innerHeight / 2) {
    const scale = Math.min(Math.max(view.scale * factor, 0.005), 6), k = scale / view.scale;
    view = {x: cx - (cx - view.x) * k, y: cy - (cy - view.y) * k, scale};
    show();
  }
  function fit() {
    const [, , width, height] = top.now, scale = Math.min((innerWidth - 24) / width, (innerHeight - above() - 34) / height, 1.4);
    if (scale < 0.5) {  // too much for one look: its beginning, at a size that can be read
      const wide = Math.min(Math.max((innerWidth - 24) / width, 0.65), 1);
      view = {x: (innerWidth - width * wide) / 2, y: above(), scale: wide};
      if (width * wide > innerWidth) view.x = Math.min(12, Math.max(innerWidth - 12 - width * wide, innerWidth / 2 - whereIs(firstOf())[0] * wide));
    } else view = {x: (innerWidth - width * scale) / 2, y: Math.max(above(), (innerHeight + 40 - height * scale) / 2), scale};
    show();
  }
  function overview() {
    const [, , width, height] = top.now, scale = Math.min((innerWidth - 24) / width, (innerHeight - above() - 34) / height, 1.4);
    view = {x: (innerWidth - width * scale) / 2, y: above(), scale};
    show();
  }
  const firstOf = () => boxes.get(root.querySelector(".access.input") || root.querySelector(".access") || top.group);
  function whereIs(box, below = 40) {  // the middle of a box, but not far below its top, in the graph's coordinates
    let x = box.now[2] / 2, y = Math.min(box.now[3] / 2, below);
    for (; box; box = box.parent) { x += box.now[0]; y += box.now[1]; }
    return [x, y];
  }
  function goTo(box) {
    let opened = false;
    for (let outer = box.parent; outer; outer = outer.parent) if (outer.isFolded) { fold(outer, false); opened = true; }
    if (opened) settle(box.parent);
    const [x, y] = whereIs(box), scale = Math.max(view.scale, 0.9);
    view = {x: innerWidth / 2 - x * scale, y: innerHeight / 2 - y * scale, scale};
    show();
  }
  svg.addEventListener("wheel", event => {
    event.preventDefault();
    if (event.ctrlKey || event.metaKey || !event.shiftKey && Math.abs(event.deltaX) < Math.abs(event.deltaY))
      zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016)), event.clientX, event.clientY);
    else { view.x -= event.deltaX || event.deltaY; show(); }
  }, {passive: false});
  const fingers = new Map();
  let dragged = 0;
  svg.addEventListener("pointerdown", event => { fingers.set(event.pointerId, [event.clientX, event.clientY]); dragged = 0; });
  addEventListener("pointermove", event => {
    const before = fingers.get(event.pointerId);
    if (!before) { hover(event); return; }
    const now = [event.clientX, event.clientY], other = [...fingers].find(([id]) => id !== event.pointerId);
    if (other) zoom(distance(now, other[1]) / (distance(before, other[1]) || 1), (now[0] + other[1][0]) / 2, (now[1] + other[1][1]) / 2);
    else { view.x += now[0] - before[0]; view.y += now[1] - before[1]; show(); }
    dragged += distance(before, now);
    fingers.set(event.pointerId, now);
    svg.classList.toggle("moving", dragged > 4);
    tip.hidden = true;
  });
  for (const name of ["pointerup", "pointercancel"]) addEventListener(name, event => { fingers.delete(event.pointerId); svg.classList.remove("moving"); });
  const distance = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]);
  svg.addEventListener("click", event => {
    if (dragged > 4) return;
    const head = event.target.closest(".head"), again = event.target.closest(".again");
    if (head) {
      const box = boxes.get(head.parentNode), before = whereIs(box, 0);
      fold(box, !box.isFolded); settle(box);
      const after = whereIs(box, 0);  // the head stays where it is on the screen
      view.x += (before[0] - after[0]) * view.scale;
      view.y += (before[1] - after[1]) * view.scale;
      show();
    } else if (again && byKey.has(again.dataset.k)) goTo(byKey.get(again.dataset.k));
  });

  // ---- what a node or an edge is ----
  let lit = [];
  function hover(event) {
    const group = near(event.clientX, event.clientY), key = group && group.dataset.k, words = told[key];
    for (const element of lit) element.classList.remove("lit");
    lit = [];
    if (!words) { tip.hidden = true; return; }
    if (group.classList.contains("edge")) lit = [group];
    else lit = (edgesOf.get(key) || []).map(edge => edge.group);
    for (const element of document.querySelectorAll(`.again[data-k="${key}"]`)) lit.push(element);
    for (const element of lit) element.classList.add("lit");
    tip.replaceChildren(...describe(words));
    tip.hidden = false;
    const {width, height} = tip.getBoundingClientRect();
    tip.style.left = Math.max(8, Math.min(event.clientX + 16, innerWidth - width - 8)) + "px";
    tip.style.top = Math.max(8, event.clientY + 18 + height > innerHeight ? event.clientY - height - 12 : event.clientY + 18) + "px";
  }
  function near(x, y) {  // an edge is thin: some pixels beside it count as well
    for (const [dx, dy] of [[0, 0], [4, 0], [-4, 0], [0, 4], [0, -4]]) {
      const element = document.elementFromPoint(x + dx, y + dy);
      if (!element || !svg.contains(element)) { if (!dx && !dy) return null; continue; }
      const group = element.closest(".edge") || element.closest(".head") || element.closest(".box");
      if (!group) continue;
      const found = group.classList.contains("head") ? group.parentNode : group;
      if (!dx && !dy && (!boxes.has(found) || !boxes.get(found).inner || group !== found)) return found;
      if ((dx || dy) && found.classList.contains("edge")) return found;
    }
    return null;
  }
  function describe([title, rows, code]) {
    const element = (name, text) => { const node = document.createElement(name); node.textContent = text; return node; };
    const list = document.createElement("dl");
    for (const [what, text] of rows) list.append(element("dt", what), element("dd", text));
    return [element("b", title), ...(rows.length ? [list] : []), ...(code ? [element("pre", code)] : [])];
  }

  // ---- search ----
  const input = document.getElementById("find"), count = document.getElementById("count");
  let found = [], current = -1;
  const words = [...byKey].map(([key, box]) => [box, (told[key] ? [told[key][0], ...told[key][1].map(row => row[1]), told[key][2] || ""].join("\n") : "").toLowerCase()]);
  function find() {
    for (const box of found) box.group.classList.remove("found", "current");
    const text = input.value.trim().toLowerCase();
    found = text ? words.filter(([box, all]) => box.parent && all.includes(text)).map(([box]) => box) : [];
    found.sort((a, b) => { const [ax, ay] = whereIs(a), [bx, by] = whereIs(b); return ay - by || ax - bx; });
    const exact = found.findIndex(box => told[box.group.dataset.k][0].toLowerCase() === text);
    for (const box of found) box.group.classList.add("found");
    current = -1;
    count.textContent = text ? `${found.length} found` : "";
    if (found.length) step(exact < 0 ? 1 : exact + 1);
  }
  function step(by) {
    if (!found.length) return;
    if (current >= 0) found[current].group.classList.remove("current");
    current = (current + by + found.length) % found.length;
    found[current].group.classList.add("current");
    count.textContent = `${current + 1} of ${found.length}`;
    goTo(found[current]);
  }
  input.addEventListener("input", find);
  input.addEventListener("keydown", event => {
    if (event.key === "Enter") { step(event.shiftKey ? -1 : 1); event.preventDefault(); }
    if (event.key === "Escape") { input.value = ""; find(); input.blur(); }
    event.stopPropagation();
  });

  // ---- keys and buttons ----
  const actions = {
    fit, overview, fold: () => { foldAll(true); overview(); }, unfold: () => { foldAll(false); fit(); },
    in: () => zoom(1.25), out: () => zoom(0.8), find: () => { input.focus(); input.select(); }, next: () => step(1), back: () => step(-1)};
  const keys = {"/": "find", "0": "overview", "1": "fit", "+": "in", "=": "in", "-": "out", "[": "fold", "]": "unfold", n: "next", N: "back"};
  addEventListener("keydown", event => {
    if ((event.ctrlKey || event.metaKey) && event.key === "f") { actions.find(); event.preventDefault(); return; }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const arrows = {ArrowLeft: [1, 0], ArrowRight: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1]}[event.key];
    if (arrows) { view.x += 80 * arrows[0]; view.y += 80 * arrows[1]; show(); }
    else if (keys[event.key]) actions[keys[event.key]](); else return;
    event.preventDefault();
  });
  for (const button of document.querySelectorAll("[data-do]")) button.addEventListener("click", () => actions[button.dataset.do]());
  addEventListener("resize", show);
  if (location.hash.length > 1) { fit(); input.value = decodeURIComponent(location.hash.slice(1)); find(); } else fit();
  document.documentElement.dataset.ready = "yes";
})();
