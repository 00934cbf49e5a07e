"""`modelforge environment`: what a node's child processes run in, as the node read it and as its owner declares it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import rich_click as click

from bus import verbs
from bus.errors import ErrorCode, Exit, ModelForgeError
from bus.ids import now
from bus.messages.api import ById, Page
from bus.text import clean_line
from modelforge import format as text
from modelforge import toml_text
from modelforge.cli.command import App, Command, LocalCommand
from modelforge.cli.names import adapter_label
from modelforge.cli.output import columns
from modelforge.cli.session import with_operator

if TYPE_CHECKING:
    from bus.messages.profiles import AdapterFacts, EnvironmentView, RuntimeEnvironment

_MODEL_TYPES_SHOWN: Final = 12
# What an owner may declare of an adapter; everything else is read on the node.
_DECLARED: Final = ("tasks", "modalities", "model_types", "formats", "quantizations")
_COLUMNS: Final = 80


@click.group()
def environment() -> None:
    """List, show and validate runtime environments."""


@environment.command("list", cls=Command)
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Newest ones only.")
@click.pass_obj
def list_(app: App, limit: int) -> None:
    """List the environments that this controller has seen, newest first."""
    reply = with_operator(app, lambda operator: operator.call(verbs.ENVIRONMENTS_LIST, Page(limit=limit)))
    found = reply.environments

    def rows() -> str:
        moment = now()
        return text.table(
            ("ENVIRONMENT", "VERSION", "NODES", "RUNS IN", "PACKAGES", "ADAPTERS", "AGE"),
            [
                (
                    text.short(one.id),
                    one.version,
                    ", ".join(one.nodes) or text.NOTHING,
                    one.environment.image or f"python {one.environment.python}",
                    len(one.environment.packages),
                    _executable(one.environment),
                    text.age(one.first_seen_at, moment),
                )
                for one in found
            ],
        )

    app.out.result("environments", found, rows)
    app.out.truncated(reply, len(found), limit)
    if not found:
        app.next("modelforge up")


def _executable(found: RuntimeEnvironment) -> str:
    """How many of the declared adapters can be run."""
    return f"{sum(one.executable for one in found.adapters)} of {len(found.adapters)} executable"


@environment.command(cls=Command)
@click.argument("named", metavar="NODE_OR_ID")
@click.option("--toml", "as_toml", is_flag=True, help="What it declares, as a file for `[node] environment`.")
@click.pass_obj
def show(app: App, named: str, as_toml: bool) -> None:
    """Show the environment of a node, or one by its id or the beginning of it."""
    found = with_operator(app, lambda operator: operator.call(verbs.ENVIRONMENTS_SHOW, ById(id=named)))
    if as_toml:
        written = declaration_toml(found.environment)
        app.out.result("environment-toml", {"toml": written}, written.rstrip)
        return
    app.out.result("environment", found, lambda: environment_card(found))


def declaration_toml(found: RuntimeEnvironment) -> str:
    """What an environment declares, in the form of the file that a node's owner writes."""
    adapters = {one.name: {key: list(getattr(one, key)) for key in _DECLARED} for one in found.adapters}
    return toml_text.render({"image": found.image, "adapters": adapters})


def environment_card(found: EnvironmentView) -> str:
    """An environment on the screen: what was read, then what each adapter declares."""
    inside = found.environment
    head = text.card(
        [
            ("environment", found.id),
            ("version", found.version),
            ("nodes", ", ".join(found.nodes) or "none now"),
            ("first seen", text.moment(found.first_seen_at)),
            ("image", inside.image or "none: it runs on the machine itself"),
            ("python", f"{inside.python} on {inside.platform}"),
        ],
        indent=0,
        columns=columns(),
    )
    packages = text.table(("PACKAGE", "VERSION"), sorted(inside.packages.items())) if inside.packages else "no packages"
    return "\n\n".join([head, packages, *(_adapter_card(one) for one in inside.adapters)])


def _adapter_card(one: AdapterFacts) -> str:
    state = "executable" if one.executable else f"not executable: {one.reason or 'no reason given'}"
    types = ", ".join(one.model_types[:_MODEL_TYPES_SHOWN])
    if len(one.model_types) > _MODEL_TYPES_SHOWN:
        types = f"{types} and {len(one.model_types) - _MODEL_TYPES_SHOWN} more: see --json"
    title = text.fit(f"{adapter_label(one.name, one.version)} (declared, not proven)", _COLUMNS)
    pairs: list[tuple[str, object]] = [
        ("state", "inspected only: no version of this product runs it yet" if one.inspect_only else state),
        ("tasks", _listed(one.tasks)),
        ("modalities", _listed(one.modalities)),
        ("formats", _listed(one.formats)),
        ("quantizations", _listed(one.quantizations)),
        ("model types", types or "no list"),
    ]
    return f"{title}\n{text.card(pairs, columns=columns())}"


def _listed(values: tuple[str, ...]) -> str:
    return ", ".join(values) or "none"


@environment.command(cls=LocalCommand)
@click.argument("file", type=click.Path(path_type=Path))
@click.pass_obj
def validate(app: App, file: Path) -> int:
    """Check the environment file FILE of a node. Needs no controller and no agent. Exit 2 when it is wrong."""
    from node_agent.environment_file import load  # noqa: PLC0415 -- lazy: the only command that needs the agent's code

    try:
        declared = load(file)
    except ModelForgeError as error:
        if error.code is not ErrorCode.CONFIG_INVALID:
            raise
        problem = {"code": error.code.value, "message": error.message}
        data = {"file": clean_line(str(file)), "valid": False, "problems": [problem], "declared": None}
        said = _invalid_text(app, file, error)
        app.out.result("environment-check", data, lambda: said)
        return Exit.USAGE
    fields: dict[str, Any] = msgspec.to_builtins(declared)
    data = {"file": clean_line(str(file)), "valid": True, "problems": [], "declared": fields}
    head = app.out.style(text.fit(f"VALID: {file}", _COLUMNS), "ok")
    app.out.result("environment-check", data, lambda: f"{head}\n{_declared_text(fields)}")
    app.out.note("name it in the node's configuration: [node] environment = FILE", "quiet")
    return Exit.OK


def _invalid_text(app: App, file: Path, error: ModelForgeError) -> str:
    head = app.out.style(text.fit(f"INVALID: {file}", _COLUMNS), "fail")
    return "\n".join([head, *text.wrap(f"{error.code}: {error.message}", _COLUMNS, rest="  ")])


def _declared_text(fields: dict[str, Any]) -> str:
    pairs: list[tuple[str, object]] = [("image", fields.get("image") or "none")]
    for name, declared in fields.get("adapters", {}).items():
        said = [f"{key}: {', '.join(values)}" for key, values in declared.items() if values]
        pairs.append((name, "\n".join(said) or "nothing"))
    return text.card(pairs, indent=0)
