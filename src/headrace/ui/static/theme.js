// Sets the theme before anything is drawn: the chosen one, or the system's.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    let chosen = null;
    try { chosen = localStorage.getItem("headrace-theme"); } catch { /* Storage may be turned off. */ }
    document.documentElement.dataset.theme = chosen ?? (dark.matches ? "dark" : "light");
    dispatchEvent(new Event("themechange"));
  };
  apply();
  dark.addEventListener("change", apply);
  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    if (!button) return;
    const label = () => {
      const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
      button.textContent = next === "dark" ? "Dark" : "Light";
      button.setAttribute("aria-label", `Switch to the ${next} theme`);
      return next;
    };
    label();
    addEventListener("themechange", label);
    button.addEventListener("click", () => {
      try { localStorage.setItem("headrace-theme", label()); } catch { return; }
      apply();
    });
  });
})();
