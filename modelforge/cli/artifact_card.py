"""An artifact set on the screen: identity, places, what speaks against it, files, weights, pickles and notes.

Names and reasons come from a model's folder; the tables and cards clean them once more.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from bus.messages.artifacts import FileFormat
from modelforge import format as text
from modelforge.cli.output import columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bus.messages.artifacts import (
        ArtifactSet,
        Expectation,
        FileEntry,
        PickleFacts,
        Quarantine,
        SetEvidence,
        SetLocation,
        WeightFacts,
    )

SHOWN_MAX: Final = 40
_IMPORTS_MAX: Final = 3
_LINE_COLUMNS_MAX: Final = 400
# What a model folder should not surprise anybody with: code, containers, and files that are not what they seem.
REMARKABLE: Final = frozenset(
    {
        FileFormat.EMPTY,
        FileFormat.PICKLE,
        FileFormat.TORCH_ZIP,
        FileFormat.LFS_POINTER,
        FileFormat.HTML,
        FileFormat.PYTHON,
        FileFormat.SCRIPT,
        FileFormat.ZIP,
        FileFormat.TAR,
        FileFormat.GZIP,
        FileFormat.BZIP2,
        FileFormat.XZ,
        FileFormat.ZSTD,
        FileFormat.SEVEN_ZIP,
        FileFormat.RAR,
        FileFormat.ELF,
        FileFormat.PE,
        FileFormat.MACH_O,
        FileFormat.WASM,
    }
)


def places(one: ArtifactSet) -> str:
    """Where it lies, on one line; a corrupt place says so."""
    return ", ".join(_place_short(place) for place in one.locations) or text.NOTHING


def _place_short(place: SetLocation) -> str:
    mark = " (CORRUPT)" if place.state == "corrupt" else ""
    return f"{place.node}:{place.path}{mark}"


def state(one: ArtifactSet) -> str:
    """What an operator must look at, counted, or in how many places the set lies: `1 place`, `CORRUPT`, `2 quarantined`."""
    said = []
    held = sum(held.released_by is None for held in one.quarantined)
    if held:
        said.append(f"{held} quarantined")
    corrupt = sum(place.state == "corrupt" for place in one.locations)
    if corrupt:
        said.append("CORRUPT" if corrupt == len(one.locations) else f"{corrupt} of {len(one.locations)} places CORRUPT")
    return ", ".join(said) or (text.count(len(one.locations), "place") if one.locations else "nowhere")


def set_card(found: ArtifactSet, files: Sequence[FileEntry]) -> str:
    """Everything about a set, with `files` of its members."""
    evidence = found.evidence
    blocks = [text.card(_head(found), indent=0, columns=columns())]
    if found.quarantined:
        blocks.append(_titled("quarantined", [_quarantine_line(one) for one in found.quarantined]))
    if found.expectations:
        blocks.append(_titled("compared with", [_expectation_line(one) for one in found.expectations]))
    if files:
        blocks.append(files_table(files, evidence))
    if found.file_count > len(files):
        blocks.append(f"and {text.count(found.file_count - len(files), 'more file')}: see --files or --json")
    if evidence is not None:
        blocks += _evidence_blocks(evidence)
    return "\n\n".join(blocks)


def _head(found: ArtifactSet) -> list[tuple[str, object]]:
    pairs: list[tuple[str, object]] = [
        ("set", found.digest),
        ("files", found.file_count),
        ("size", text.size(found.size_bytes)),
        ("created", text.moment(found.created_at)),
        ("locations", "\n".join(_place(place) for place in found.locations) or "none: it lies nowhere now"),
    ]
    if found.evidence is not None and found.evidence.formats:
        counted = Counter(found.evidence.formats.values())
        pairs.append(("formats", ", ".join(f"{name} {number}" for name, number in counted.most_common())))
    return pairs


def _place(place: SetLocation) -> str:
    where = f"{place.node}:{place.path}"
    if place.state == "present":
        return f"{where} present, scanned {text.moment(place.scanned_at)}"
    found = f"found {text.moment(place.found_at)} by {place.found_by or 'nobody named'}"
    return f"{where} CORRUPT: {place.file or 'a file'}: {place.problem or 'no reason given'} ({found})"


def _quarantine_line(one: Quarantine) -> str:
    released = f"released for this set by {one.released_by}" if one.released_by else "NOT released"
    return (
        f"{one.path} ({text.short(one.sha256)}): {one.reason} [{one.id} by {one.quarantined_by}, "
        f"{text.moment(one.quarantined_at)}; {released}]"
    )


def _expectation_line(one: Expectation) -> str:
    key = f", signed with {one.key}" if one.key else ""
    when = f"by {one.required_by} in {one.scan_id}, {text.moment(one.at)}"
    return f"{one.kind} {text.short(one.sha256)}{key}: every file is equal ({when})"


def _titled(title: str, lines: Sequence[str]) -> str:
    return f"{title}\n{_bounded(lines)}"


def _bounded(lines: Sequence[str]) -> str:
    shown = [f"  {text.fit(line, _LINE_COLUMNS_MAX)}" for line in lines[:SHOWN_MAX]]
    if len(lines) > SHOWN_MAX:
        shown.append(f"  and {len(lines) - SHOWN_MAX} more: see --json")
    return "\n".join(shown)


def files_table(files: Sequence[FileEntry], evidence: SetEvidence | None) -> str:
    """Members with digest, size and what their bytes are."""
    formats = evidence.formats if evidence is not None else {}
    rows = [
        (text.short(file.sha256), text.size(file.size_bytes), formats.get(file.path, text.NOTHING), file.path)
        for file in files
    ]
    return text.table(("SHA-256", "SIZE", "FORMAT", "FILE"), rows)


def _evidence_blocks(evidence: SetEvidence) -> list[str]:
    blocks = []
    remarkable = sorted((form, path) for path, form in evidence.formats.items() if form in REMARKABLE)
    if remarkable:
        blocks.append(_titled("by their bytes", [f"{form}: {path}" for form, path in remarkable]))
    if evidence.weights:
        blocks.append(_weights_table(evidence.weights))
    if evidence.pickles:
        blocks.append(_titled("pickles, read and never loaded", [_pickle_line(one) for one in evidence.pickles]))
    if evidence.notes:
        blocks.append(_titled("notes", evidence.notes))
    return blocks


def _weights_table(weights: Sequence[WeightFacts]) -> str:
    rows = [
        (
            one.format,
            one.metadata.get("quantization", text.NOTHING),
            one.tensors,
            one.parameters,
            ", ".join(f"{dtype} {text.size(size)}" for dtype, size in one.bytes_by_dtype.items()) or text.NOTHING,
            one.path + (f": {one.problem}" if one.problem else ""),
        )
        for one in weights[:SHOWN_MAX]
    ]
    table = text.table(("FORMAT", "QUANTIZATION", "TENSORS", "PARAMETERS", "DTYPES", "WEIGHTS"), rows)
    more = len(weights) - SHOWN_MAX
    return f"{table}\nand {more} more: see --json" if more > 0 else table


def _pickle_line(one: PickleFacts) -> str:
    where = f"{one.path}!{one.member}" if one.member else one.path
    imports = ", ".join(one.imports[:_IMPORTS_MAX]) + (" …" if len(one.imports) > _IMPORTS_MAX else "")
    line = f"{one.verdict}: {where}: {one.reason}" + (f" (imports {imports})" if imports else "")
    opinions = "; ".join(
        f"{opinion.tool} {opinion.version}: {opinion.verdict}" + (f", {opinion.detail}" if opinion.detail else "")
        for opinion in one.opinions
    )
    return f"{line} [second opinions: {opinions}]" if opinions else line


def quarantine_card(one: Quarantine) -> str:
    """A quarantine on the screen."""
    return text.card(
        [
            ("quarantine", one.id),
            ("file", one.path),
            ("SHA-256", one.sha256),
            ("set", one.set_digest),
            ("reason", one.reason),
            ("by", f"{one.quarantined_by}, {text.moment(one.quarantined_at)}"),
            ("released", one.released_by or "no"),
        ],
        indent=0,
    )
