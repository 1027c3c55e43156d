// Before the first paint: the theme that was chosen here before; without one the system's holds.
try {
  const chosen = localStorage.getItem("archlab-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* a page from a file may have no storage */ }
