// Guides come before the reference; attributes, and the page that lists tests, come last.
var Scorer = {
  score: ([page, title, anchor, description, score]) => {
    const isLast = page === "reference/capabilities" || (description || "").startsWith("Python attribute");
    return score + (isLast ? -20 : page.startsWith("reference/") ? 0 : 2);
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
