"""docs/reference/metrics.md: every metric, as a first scrape would show it."""

from __future__ import annotations

from prometheus_client.core import Metric

from bus.states import ProbeState
from docs.generators import markdown as md
from observability.counters import Counters
from observability.exporter import ModelForgeCollector
from observability.persistence import PersistenceHealth
from observability.vitals import Vitals


def render() -> str:
    """The page."""
    intro = (
        "The controller's Prometheus endpoint (`controller.metrics_port`). Every series exists from the first scrape on, and "
        "every label has a closed set of values: no id, digest or error text can become a series. The endpoint only reads; "
        "what it shows is derived from the ledger's work and is never the truth itself."
    )
    collector = ModelForgeCollector(
        Counters(), health=PersistenceHealth(), probe_counts=lambda: dict.fromkeys(ProbeState, 0), vitals=Vitals
    )
    rows = [
        (md.code(_name(metric)), metric.type, metric.documentation, _labels(metric)) for metric in collector.collect()
    ]
    return md.page("Metrics", intro, md.table(("metric", "type", "what it says", "labels"), rows))


def _name(metric: Metric) -> str:
    return metric.name + ("_total" if metric.type == "counter" else "")


def _labels(metric: Metric) -> str:
    values: dict[str, list[str]] = {}
    for sample in metric.samples:
        for label, value in sample.labels.items():
            values.setdefault(label, []).append(value)
    if metric.name == "modelforge_build_info":
        return "`version`: the running one"
    return (
        "; ".join(f"`{label}`: {', '.join(map(md.code, dict.fromkeys(seen)))}" for label, seen in values.items()) or "-"
    )
