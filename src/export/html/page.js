"use strict";
(() => {
  const search = document.getElementById("search");
  const found = document.getElementById("found");
  const unfold = document.getElementById("unfold");
  const folds = () => document.querySelectorAll("main details");
  let texts = null;
  let timer = 0;

  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    texts ??= Array.from(document.querySelectorAll("main > .entry"), (entry) => [entry, entry.textContent.toLowerCase()]);
    let shown = 0;
    for (const [entry, text] of texts) {
      entry.hidden = !words.every((word) => text.includes(word));
      if (!entry.hidden) shown += 1;
    }
    found.textContent = words.length ? `${shown} of ${texts.length}` : "";
  };

  search.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(filter, 120);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement !== search) {
      event.preventDefault();
      search.focus();
    }
  });
  unfold.addEventListener("click", () => {
    const open = unfold.textContent === "Unfold all";
    for (const fold of folds()) fold.open = open;
    unfold.textContent = open ? "Fold all" : "Unfold all";
  });
  addEventListener("beforeprint", () => {
    for (const fold of folds()) {
      fold.dataset.wasOpen = fold.open;
      fold.open = true;
    }
  });
  addEventListener("afterprint", () => {
    for (const fold of folds()) fold.open = fold.dataset.wasOpen === "true";
  });
  search.hidden = false;
  unfold.hidden = false;
})();
