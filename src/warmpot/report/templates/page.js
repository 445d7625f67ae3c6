"use strict";
(() => {
  const root = document.documentElement, key = "warmpot-theme", themes = ["auto", "light", "dark"];
  let theme = "auto";
  const store = (value) => {  // pages opened from disk may have no storage
    try { if (value) localStorage.setItem(key, value); return localStorage.getItem(key); } catch { return null; }
  };
  const paint = (name) => {
    theme = themes.includes(name) ? name : "auto";
    if (theme === "auto") root.removeAttribute("data-theme"); else root.dataset.theme = theme;
    const button = document.querySelector(".theme");
    if (button) { button.textContent = "Theme: " + theme; button.hidden = false; }
  };
  paint(store());

  // tables: a sort button in every column head; numbers before texts, empty cells last
  const heads = (table) => [...table.tHead.rows].at(-1).cells;
  const rank = (row, column) => {
    const cell = row.cells[column], text = cell.dataset.sort ?? cell.textContent.trim(), number = Number(text);
    return text === "" || text === "–" ? [2, ""] : Number.isFinite(number) ? [0, number] : [1, text];
  };
  const sort = (table, column) => {
    const all = [...heads(table)], rows = [...table.tBodies[0].rows];
    const keys = new Map(rows.map((row) => [row, rank(row, column)]));
    const now = all[column].getAttribute("aria-sort"), numbers = rows.some((row) => keys.get(row)[0] === 0);
    const up = now === "ascending" ? false : now === "descending" ? true : !numbers;  // largest number first
    const words = new Intl.Collator(undefined, { numeric: true });
    rows.sort((a, b) => {
      const [p, x] = keys.get(a), [q, y] = keys.get(b);
      if (p === 2 || q === 2) return p - q;
      const order = p !== q ? p - q : p === 0 ? x - y : words.compare(x, y);
      return up ? order : -order;
    });
    all.forEach((head, at) => head.setAttribute("aria-sort", at !== column ? "none" : up ? "ascending" : "descending"));
    table.tBodies[0].append(...rows);
  };
  const tables = () => document.querySelectorAll("table.sortable").forEach((table) => {
    if (table.tBodies[0].rows.length < 2) return;
    [...heads(table)].forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      head.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => sort(table, column));
    });
  });

  // tips: for the element under the pointer or the nearest one; arrow keys move through a figure
  const tips = () => {
    const box = document.getElementById("tip"), near = 18;
    let on = null, walked = false;
    const hide = () => { on?.classList.remove("on"); on = null; box.hidden = true; };
    const show = (element, x, y) => {
      if (on !== element) { on?.classList.remove("on"); element.classList.add("on"); on = element; box.textContent = element.dataset.tip; }
      box.hidden = false;
      const gap = 14, size = box.getBoundingClientRect();
      const left = Math.min(Math.max(x + gap, 8), innerWidth - size.width - 8);
      const top = y - size.height - gap < 8 ? y + gap + 6 : y - size.height - gap;
      box.style.transform = `translate(${Math.round(left)}px,${Math.round(top)}px)`;
    };
    const middle = (element) => {
      const at = element.getBoundingClientRect();
      return [at.left + at.width / 2, at.top + at.height / 2];
    };
    const nearest = (canvas, x, y) => {
      let best = null, least = near * near;
      for (const element of canvas.querySelectorAll("[data-tip]")) {
        const [u, v] = middle(element), distance = (u - x) ** 2 + (v - y) ** 2;
        if (distance < least) { best = element; least = distance; }
      }
      return best;
    };
    let frame = 0;
    const follow = (event) => {
      if (frame) return;
      frame = requestAnimationFrame(() => {
        frame = 0;
        walked = false;
        const canvas = event.target.closest?.(".canvas[data-tips]");
        const element = event.target.closest?.("[data-tip]") ?? (canvas && nearest(canvas, event.clientX, event.clientY));
        if (element) show(element, event.clientX, event.clientY); else if (on) hide();
      });
    };
    document.addEventListener("pointermove", follow, { passive: true });
    document.addEventListener("pointerdown", follow, { passive: true });
    document.addEventListener("scroll", () => on && (walked ? show(on, ...middle(on)) : hide()), { passive: true, capture: true });
    document.addEventListener("focusin", (event) => {
      if (event.target.dataset?.tip && event.target.matches(":focus-visible")) show(event.target, ...middle(event.target));
    });
    document.addEventListener("focusout", hide);
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape") return hide();
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const canvas = event.target.closest?.(".canvas[data-tips]");
      if (!canvas || !step) return;
      const all = [...canvas.querySelectorAll("[data-tip]")], at = all.indexOf(on);
      if (!all.length) return;
      event.preventDefault();
      walked = true;
      const next = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : (at + step + all.length) % all.length];
      show(next, ...middle(next));
    });
  };

  const copies = () => document.querySelectorAll(".code").forEach((block) => {
    const button = document.createElement("button"), code = block.querySelector("code");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
      } catch {  // some browsers deny the clipboard to pages opened from disk: select the text instead
        getSelection().selectAllChildren(code);
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    block.append(button);
  });

  const contents = () => {
    const links = new Map([...document.querySelectorAll(".toc a")].map((link) => [link.hash.slice(1), link]));
    const sections = [...document.querySelectorAll("main > section")];
    const mark = () => {
      const line = innerHeight / 3;
      const end = innerHeight + scrollY >= root.scrollHeight - 4;
      const now = end ? sections.at(-1) : sections.findLast((section) => section.getBoundingClientRect().top <= line) ?? sections[0];
      links.forEach((link, id) => id === now?.id ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current"));
    };
    if (links.size) { document.addEventListener("scroll", mark, { passive: true }); mark(); }
  };

  document.addEventListener("DOMContentLoaded", () => {
    paint(theme);
    document.querySelector(".theme").addEventListener("click", () => {
      paint(themes[(themes.indexOf(theme) + 1) % themes.length]);
      store(theme);
    });
    tables(); tips(); copies(); contents();
    const open = () => document.querySelectorAll("details:not([open])").forEach((one) => { one.dataset.folded = ""; one.open = true; });
    const fold = () => document.querySelectorAll("details[data-folded]").forEach((one) => { one.open = false; delete one.dataset.folded; });
    addEventListener("beforeprint", open);
    addEventListener("afterprint", fold);
  });
})();
