"""The curve of a driver's memory over its batches, from the samples that `make bench NAME=lifetime` has kept."""

from __future__ import annotations

import csv

from benchmarks.lifetime import CURVE

# As many as a page's width shows apart.
POINTS = 50
LINES = {
    "heap": "the JVM's heap after a collection",
    "python": "the resident memory of the driver's Python",
    "jvm": "the resident memory of the JVM",
}


def charts() -> str:
    """One chart for each kind of memory, in MB, and a table of the samples at each tenth of the way."""
    with CURVE.open(encoding="utf-8", newline="") as file:
        samples = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    shown = _spread(samples, POINTS)
    thousands = shown[-1]["batches"] / 1000
    parts = []
    for name, title in LINES.items():
        values = [sample[name] for sample in shown]
        parts += [
            "```mermaid",
            "xychart-beta",
            f'    title "{title}, in MB"',
            f'    x-axis "thousands of batches" 0 --> {thousands:.0f}',
            f"    y-axis 0 --> {1.2 * max(values):.0f}",
            f"    line [{', '.join(f'{value:.0f}' for value in values)}]",
            "```",
            "",
        ]
    rows = [
        f"| {sample['batches']:,.0f} | {sample['seconds'] / 60:.0f} | "
        + " | ".join(f"{sample[name]:.0f}" for name in LINES)
        + " |"
        for sample in _spread(samples, 11)
    ]
    head = ["| batches | minutes | heap, MB | Python, MB | JVM, MB |", "|---|---|---|---|---|"]
    return "\n".join([*parts, *head, *rows])


def _spread(samples: list[dict[str, float]], count: int) -> list[dict[str, float]]:
    """As many samples as that at equal steps, the first and the last among them."""
    last = len(samples) - 1
    return [samples[round(step * last / (count - 1))] for step in range(count)]
