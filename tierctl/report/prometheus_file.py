"""Merge the metrics of a run into a file of Prometheus text, and replace the file by a rename."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tierctl.errors import SafetyRefusal
from tierctl.files import exclusive_replacement, read_regular, replace_durably
from tierctl.report.prometheus import FAMILIES, Family, Labels, Meter

_TOTAL = "_total"
"""End of the names of counters, which `prometheus_client` leaves out of the names of families."""

_Values = dict[Family, dict[Labels, float]]


@dataclass(slots=True)
class _Content:
    """The metrics in a file: those of tierctl, and unknown ones."""

    values: _Values = field(default_factory=dict)
    others: list[Metric] = field(default_factory=list)

    def collect(self) -> Iterator[Metric]:
        """Yield each metric, as a registry of `prometheus_client` does."""
        for family, values in sorted(self.values.items(), key=lambda item: item[0].name):
            metric = Metric(family.name.removesuffix(_TOTAL), family.help, family.kind)
            for labels, value in sorted(values.items()):
                metric.add_sample(family.name, dict(zip(family.labels, labels, strict=True)), value)
            yield metric
        yield from self.others


def write_metrics(path: Path, meter: Meter) -> None:
    """Merge `meter` into the metrics of earlier runs in `path`: add to counters, replace gauges.

    Runs that write at the same time wait for each other. Raise SafetyRefusal for a file with other content
    than metrics, OSError if the file can't be read or written, and LockedError after ten seconds.
    """
    path = path.absolute()
    with exclusive_replacement(path):
        try:
            content = _parsed(read_regular(path).decode("utf-8"))
        except FileNotFoundError:
            content = _Content()
        except ValueError as e:
            why = f" ({e})" if str(e) else ""  # Some errors of the library have no text.
            raise SafetyRefusal(
                f"it is no Prometheus text{why}, and is not replaced: name another file, or move it away"
            ) from e
        _merge(content.values, meter)
        replace_durably(path, generate_latest(content), mode=0o666)


def _parsed(text: str) -> _Content:
    content = _Content()
    for metric in text_string_to_metric_families(text):
        family = FAMILIES.get(metric.name) or FAMILIES.get(metric.name + _TOTAL)
        if family is None:
            content.others.append(metric)
            continue
        values = content.values.setdefault(family, {})
        for sample in metric.samples:
            if sample.labels.keys() == set(family.labels):
                values[tuple(sample.labels[name] for name in family.labels)] = sample.value
    if text.strip() and not (content.values or content.others):
        raise ValueError("it has only comments")
    return content


def _merge(values: _Values, meter: Meter) -> None:
    for family, counts in meter.counts.items():
        known = values.setdefault(family, {})
        for labels, amount in counts.items():
            known[labels] = known.get(labels, 0) + amount
    for family, gauges in meter.gauges.items():
        kept = {labels: v for labels, v in values.get(family, {}).items() if gauges.keeps(labels)}
        values[family] = kept | gauges.values
