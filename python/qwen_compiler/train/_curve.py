"""The curve of a training as SVG."""
from __future__ import annotations

from collections.abc import Sequence

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 640, 300, 56, 32, 24
COLORS = {"loss": "#b5482a", "KL": "#2a6fb5"}


def _points(values: Sequence[tuple[float, float]], most: float) -> list[tuple[float, float]]:
    low, high = (f(y for _, y in values) for f in (min, max))
    return [(LEFT + (WIDTH - 2 * LEFT) * x / most, TOP + (HEIGHT - TOP - BOTTOM) * (1 - (y - low) / ((high - low) or 1))) for x, y in values]


def svg(series: dict[str, Sequence[tuple[float, float]]]) -> str:
    """A picture of values over tokens, by their names in COLORS. Each has an axis of its own, on the left and on the right."""
    most = max((x for values in series.values() for x, _ in values), default=1) or 1
    parts = []
    for number, (name, values) in enumerate(each for each in series.items() if each[1]):
        color, place, anchor = COLORS[name], (LEFT - 6, WIDTH - LEFT + 6)[number], ("end", "start")[number]
        points = _points(values, most)
        parts.append(f'<polyline fill="none" stroke="{color}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{color}"/>' for x, y in points]
        for y, value in ((TOP, max(v for _, v in values)), (HEIGHT - BOTTOM, min(v for _, v in values))):
            parts.append(f'<text x="{place}" y="{y + 4}" text-anchor="{anchor}" fill="{color}">{value:.4g}</text>')
        parts.append(f'<text x="{place}" y="12" text-anchor="{anchor}" fill="{color}">{name}</text>')
    parts.append(f'<text x="{WIDTH - LEFT}" y="{HEIGHT - 8}" text-anchor="end">{most:.0f} tokens</text>')
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11">'
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>{"".join(parts)}</svg>\n')
