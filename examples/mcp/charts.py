"""An MCP server over stdio with one tool, `chart-generator`: turns rows into a bar chart, as SVG."""

from html import escape
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from typing_extensions import TypedDict

WIDTH, HEIGHT, MARGIN = 640, 320, 40
MOST_BARS = 60


class Chart(TypedDict):
    svg: str
    bars: int


def drawn(rows: list[dict[str, Any]], x: str, y: str, title: str = "") -> Chart:
    """Draw one bar for each value of `x`; values of `y` with the same `x` are added."""
    sums: dict[str, float] = {}
    for row in rows:
        if not isinstance(row.get(y), int | float):
            raise ToolError(f"A row has no number in {y!r}.")
        sums[str(row.get(x, ""))] = sums.get(str(row.get(x, "")), 0.0) + row[y]
    if not sums:
        raise ToolError("There are no rows to draw.")
    if len(sums) > MOST_BARS:
        raise ToolError(f"That would be {len(sums)} bars; at most {MOST_BARS} can be told apart.")
    return Chart(svg=_svg(sums, title), bars=len(sums))


def _svg(sums: dict[str, float], title: str) -> str:
    highest, lowest = max(*sums.values(), 0.0), min(*sums.values(), 0.0)
    scale = (HEIGHT - 2 * MARGIN) / ((highest - lowest) or 1.0)
    zero, step = MARGIN + highest * scale, (WIDTH - 2 * MARGIN) / len(sums)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
        ' font-size="11">',
        f'<text x="{WIDTH / 2}" y="20" text-anchor="middle" font-size="14">{escape(title)}</text>',
    ]
    for place, (name, value) in enumerate(sums.items()):
        left, top = MARGIN + place * step, zero - max(value, 0.0) * scale
        colour = "#2a7" if value >= 0 else "#c43"
        lines += [
            f'<rect x="{left + step * 0.1:.1f}" y="{top:.1f}" width="{step * 0.8:.1f}"'
            f' height="{abs(value) * scale:.1f}" fill="{colour}"><title>{escape(name)}: {value:g}</title></rect>',
            f'<text x="{left + step / 2:.1f}" y="{HEIGHT - 12}" text-anchor="middle">{escape(name[:18])}</text>',
        ]
    axis = f'<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{zero:.1f}" y2="{zero:.1f}" stroke="#444"/>'
    return "\n".join([*lines, axis, "</svg>"])


server = MCPServer("charts")


@server.tool("chart-generator", annotations=ToolAnnotations(read_only_hint=True))
async def draw(rows: list[dict[str, Any]], x: str, y: str, title: str = "") -> Chart:
    """Draw rows as bars: `x` names them, `y` is how high they are."""
    return drawn(rows, x, y, title)


if __name__ == "__main__":
    server.run("stdio")
