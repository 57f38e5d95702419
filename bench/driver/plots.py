# SPDX-License-Identifier: Apache-2.0
"""Time, bus bandwidth and ours/peer over size: one figure per number of ranks, one panel per collective."""

import os

from tables import human

COLOURS = {"troupe": "#c1272d", "troupe-async": "#e07b39", "troupe-group": "#8e2a8b", "troupe-persistent": "#c77dff", "openmpi": "#0b6aa2", "mpich": "#3a8f3a",
           "gloo": "#8a8a8a", "limit": "#000000"}


def draw(points, choices, folder):
    """Writes SVG and PNG files into `folder`; returns their names, or [] where matplotlib is not installed."""
    try:
        import matplotlib
        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        print("bench: no plots: python3-matplotlib is not installed")
        return []
    written = []
    for ranks in sorted({p["ranks"] for p in points.all}):
        for kind, label in (("time", "µs per call"), ("busbw", "bus bandwidth, GB/s"), ("ratio", "Troupe / peer (time)")):
            figure = one_figure(pyplot, points, ranks, kind, label)
            if figure is None:
                continue
            for ending in ("svg", "png"):
                name = f"{kind}-{ranks}.{ending}"
                figure.savefig(os.path.join(folder, name), dpi=110)
                written.append(name)
            pyplot.close(figure)
    written += draw_choices(pyplot, choices if isinstance(choices, list) else [], folder)
    return written


PROTOCOL_STYLES = {"simple": "-", "ll128": "--", "ll": ":", "direct": "-."}


def draw_choices(pyplot, choices, folder):
    """Time of every choreography with every protocol over size: a figure for each number of ranks, a panel for each collective."""
    written = []
    for ranks in sorted({p["ranks"] for p in choices}):
        here = [p for p in choices if p["ranks"] == ranks]
        collectives = list(dict.fromkeys(p["collective"] for p in here))
        columns = min(3, len(collectives))
        rows = (len(collectives) + columns - 1) // columns
        figure, panels = pyplot.subplots(rows, columns, figsize=(5.4 * columns, 4 * rows), squeeze=False, layout="constrained")
        names = list(dict.fromkeys(r["choreography"] for p in here for r in p["rows"]))
        colour = {name: pyplot.get_cmap("tab20")(i % 20) for i, name in enumerate(sorted(names))}
        for panel, collective in zip(panels.flat, collectives):
            lines = {}
            for p in sorted((p for p in here if p["collective"] == collective), key=lambda p: p["asked"]):
                for r in p["rows"]:
                    lines.setdefault((r["choreography"], r["protocol"]), []).append((p["asked"], r["us"]))
            for (name, protocol), line in sorted(lines.items()):
                panel.plot(*zip(*line), color=colour[name], linestyle=PROTOCOL_STYLES[protocol], linewidth=1, label=name)
            picks = [(p["asked"], r["us"]) for p in here if p["collective"] == collective for r in p["rows"] if r["chosen"]]
            if picks:
                panel.plot(*zip(*picks), "kx", markersize=5, label="the planner's choice")
            panel.set_xscale("log", base=2)
            panel.set_yscale("log")
            panel.set_title(f"{collective}, {ranks} ranks", fontsize=10)
            panel.xaxis.set_major_formatter(lambda x, _: human(int(x)))
            panel.tick_params(labelsize=7)
            panel.grid(True, alpha=0.3)
        for panel in list(panels.flat)[len(collectives):]:
            panel.set_visible(False)
        handles = {}
        for panel in panels.flat:
            for handle, text in zip(*panel.get_legend_handles_labels()):
                handles.setdefault(text, handle)
        last = handles.pop("the planner's choice", None)
        proxies = [pyplot.Line2D([], [], color=handle.get_color()) for handle in handles.values()] + ([last] if last else [])
        panels[0][0].legend(proxies, [*handles, *(["the planner's choice"] if last else [])], fontsize=6)
        figure.supylabel("µs per call (simple: solid, LL128: dashed, LL: dotted)", fontsize=9)
        for ending in ("svg", "png"):
            name = f"choices-{ranks}.{ending}"
            figure.savefig(os.path.join(folder, name), dpi=110)
            written.append(name)
        pyplot.close(figure)
    return written


def one_figure(pyplot, points, ranks, kind, label):
    collectives = list(dict.fromkeys(p["collective"] for p in points.all if p["ranks"] == ranks))
    columns = min(3, len(collectives))
    rows = (len(collectives) + columns - 1) // columns
    figure, panels = pyplot.subplots(rows, columns, figsize=(4.6 * columns, 3.4 * rows), squeeze=False, layout="constrained")
    drawn = False
    for panel, collective in zip(panels.flat, collectives):
        for contender in points.contenders(ranks):
            line = curve(points, contender, ranks, collective, kind)
            if line:
                panel.plot(*zip(*line), marker="o", markersize=3, linewidth=1.4, label=contender, color=COLOURS[contender],
                           linestyle="--" if contender == "limit" else "-")
                drawn = True
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        if kind == "ratio":
            panel.axhline(1, color="black", linewidth=0.8)
        panel.set_title(f"{collective}, {ranks} ranks", fontsize=10)
        panel.xaxis.set_major_formatter(lambda x, _: human(int(x)))
        panel.tick_params(labelsize=7)
        panel.grid(True, alpha=0.3)
    for panel in list(panels.flat)[len(collectives):]:
        panel.set_visible(False)
    if drawn:
        handles = {}
        for panel in panels.flat:
            handles.update({text: handle for handle, text in zip(*panel.get_legend_handles_labels())})
        panels[0][0].legend(handles.values(), handles.keys(), fontsize=7)
        figure.supylabel(label, fontsize=9)
        return figure
    pyplot.close(figure)
    return None


def curve(points, contender, ranks, collective, kind):
    line = []
    for p in sorted((p for p in points.all if (p["contender"], p["ranks"], p["collective"]) == (contender, ranks, collective)),
                    key=lambda p: p["bytes"]):
        if kind == "ratio":
            ours = points.by_key.get(("troupe", ranks, collective, p["asked"]))
            if contender.startswith("troupe") or not ours:
                continue
            line.append((p["bytes"], ours["us"] / p["us"]))
        else:
            line.append((p["bytes"], p["us"] if kind == "time" else p["busbw"]))
    return line
