"""`modelforge profile`: how a set is to be run, stored once and never changed."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
import rich_click as click

from bus import verbs
from bus.errors import ErrorCode, Exit, ModelForgeError
from bus.ids import now
from bus.messages.api import ById, Page, ProfileRequest
from bus.messages.profiles import AudioSemantics, Preprocessing, RuntimeProfile
from bus.profile_rules import NO_FALLBACK
from bus.text import clean_line
from modelforge import format as text
from modelforge import toml_text
from modelforge.cli.adapter_names import adapter_names, require_adapter
from modelforge.cli.command import App, Command, LocalCommand
from modelforge.cli.hints import after_profile
from modelforge.cli.output import columns
from modelforge.cli.profile_fields import (
    TABLES,
    Problem,
    build_profile,
    choices,
    examine,
    over,
    read_toml,
    told,
)
from modelforge.cli.session import with_operator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bus.messages.profiles import ProfileView
    from bus.operator import Operator

_AT_LEAST_1 = click.IntRange(min=1)
_FROM_0 = click.IntRange(min=0)
_COLUMNS = 80


class _Device(click.Choice[str]):
    """A device; who asks for one `or the other` is told that there is no such thing."""

    def fail(self, message: str, param: click.Parameter | None = None, ctx: click.Context | None = None) -> NoReturn:
        """Click's words, and why."""
        super().fail(f"{message} {NO_FALLBACK[0].upper()}{NO_FALLBACK[1:]}.", param, ctx)


def _one_of(name: str, type_: type[msgspec.Struct], field: str, what: str) -> Callable[..., Any]:
    """An option with a closed list of values, which its help names: a column of `--help` would break them in mid-word."""
    known = choices(type_, field)
    metavar = "WORD" if "_" in field else field.upper()
    what = f"{what.partition('  ')[0].rstrip('.')}: {', '.join(known[:-1])} or {known[-1]}.{_default_of(what)}"
    return click.option(name, field, type=click.Choice(known), metavar=metavar, help=what)


def _default_of(what: str) -> str:
    default = what.partition("  ")[2]
    return f"  {default}" if default else ""


@click.group()
def profile() -> None:
    """Create, validate, list and show runtime profiles."""


_OPTIONS = (
    click.option("--adapter", metavar="NAME", help="Adapter that loads the set.  [sentence_transformers]"),
    _one_of("--task", RuntimeProfile, "task", "What it is to do.  [embedding]"),
    click.option("--device", type=_Device(choices(RuntimeProfile, "device")), help="Where it runs.  [cpu]"),
    click.option("--gpu-uuid", metavar="UUID", help="The card, by UUID; cuda only."),
    _one_of("--dtype", RuntimeProfile, "dtype", "Of the weights.  [float32]"),
    click.option("--quantization", metavar="METHOD", help="What the weights must have, such as `gptq` or `Q4_K_M`."),
    click.option("--batch-size", type=_AT_LEAST_1, metavar="N", help="Inputs per call.  [1]"),
    click.option("--max-sequence-length", type=_AT_LEAST_1, metavar="N", help="Tokens per input.  [256]"),
    click.option("--normalize/--no-normalize", default=None, help="Unit vectors or not.  [normalize]"),
    click.option("--threads", type=_AT_LEAST_1, metavar="N", help="Threads of the child.  [1]"),
    click.option(
        "--memory-limit-mib",
        type=_AT_LEAST_1,
        metavar="N",
        help="Limit of the child's private memory (RLIMIT_DATA).  [8192]",
    ),
    click.option(
        "--memory-margin-mib",
        type=_FROM_0,
        metavar="N",
        help="Device memory that stays free beside the estimate.  [256]",
    ),
    click.option(
        "--reclaim-tolerance-mib", type=_FROM_0, metavar="N", help="GPU memory that may stay above the baseline.  [64]"
    ),
    _one_of("--overlong-text", Preprocessing, "overlong_text", "What is done to a long text."),
    click.option(
        "--image-size-px", type=_AT_LEAST_1, metavar="N", help="Edge of the square that an image is brought to."
    ),
    click.option(
        "--audio-rate-hz",
        "sampling_rate_hz",
        type=_AT_LEAST_1,
        metavar="N",
        help="Samples a second; speech recognition only.",
    ),
    click.option("--audio-window-s", "window_s", type=_AT_LEAST_1, metavar="N", help="Seconds that are heard at once."),
    _one_of("--overlong-audio", AudioSemantics, "overlong_audio", "What is done to a long one."),
    _one_of("--audio-purpose", AudioSemantics, "purpose", "What is asked of it."),
    click.option("--language", metavar="CODE", help="Language that is spoken, such as `en`."),
    click.option("--timestamps/--no-timestamps", default=None, help="Are times asked for?"),
    click.option("--preparing-s", type=_AT_LEAST_1, metavar="N", help="Budget of preparing.  [300]"),
    click.option("--loading-s", type=_AT_LEAST_1, metavar="N", help="Budget of loading.  [300]"),
    click.option("--healthchecking-s", type=_AT_LEAST_1, metavar="N", help="Budget of healthchecking.  [60]"),
    click.option("--unloading-s", type=_AT_LEAST_1, metavar="N", help="Budget of unloading.  [30]"),
    click.option("--total-s", type=_AT_LEAST_1, metavar="N", help="Budget of the whole probe.  [900]"),
)


def _fields(command: Callable[..., Any]) -> Callable[..., Any]:
    """A flag for each field of a profile."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@profile.command(cls=Command)
@click.argument("name", required=False)
@click.option(
    "--file",
    "file",
    type=click.Path(path_type=Path),
    metavar="TOML",
    help="Profile as TOML, as `profile show --toml` prints it; flags win over it.",
)
@click.option(
    "--from",
    "origin",
    metavar="OLD",
    help="Begin with the fields of a stored profile: OLD, OLD@VERSION or its id; file and flags win over it.",
)
@click.option(
    "--new-version", is_flag=True, help="Store other contents under a name that is taken, as its next version."
)
@_fields
@click.pass_obj
def create(
    app: App, /, name: str | None, file: Path | None, origin: str | None, new_version: bool, **flags: Any
) -> None:
    """Store the profile NAME. The same contents under the same name give the same profile."""
    document = read_toml(file) if file else {}
    if origin is None:
        build_profile(name, document, flags)  # what is wrong in itself is said without a controller

    async def work(operator: Operator) -> tuple[ProfileView, tuple[str, ...]]:
        began = await _stored(operator, origin) if origin is not None else {}
        wanted = build_profile(name, over(began, document), flags)
        await require_adapter(operator, wanted.adapter)
        stored = await operator.call(verbs.PROFILES_CREATE, ProfileRequest(profile=wanted, new_version=new_version))
        return stored, await after_profile(operator, stored)

    try:
        view, hints = with_operator(app, work)
    except ModelForgeError as error:
        if error.code is not ErrorCode.PROFILE_CONFLICT or new_version:
            raise
        hint = "Choose another name, or add `--new-version` to keep both."
        raise ModelForgeError(error.code, error.message, hint=hint, **error.context) from error
    app.out.result("profile", view, lambda: profile_card(view))
    app.next(*hints)


async def _stored(operator: Operator, named: str) -> dict[str, Any]:
    """The fields of a stored profile, as its TOML would hold them."""
    found = await operator.call(verbs.PROFILES_SHOW, ById(id=named))
    fields: dict[str, Any] = msgspec.to_builtins(found.profile)
    return {key: value for key, value in fields.items() if value is not None}


@profile.command(cls=LocalCommand)
@click.argument("file", type=click.Path(path_type=Path))
@click.pass_obj
def validate(app: App, file: Path) -> int:
    """Check the profile in the TOML file FILE without storing it. Needs no controller. Exit 2 when it is wrong."""
    found, problems = examine(read_toml(file), adapters=adapter_names())
    data = {
        "file": clean_line(str(file)),
        "valid": found is not None,
        "problems": problems,
        "id": found.digest() if found is not None else None,
        "profile": found,
    }
    app.out.result("profile-check", data, lambda: _check_text(app, file, found, problems))
    if found is not None:
        app.next(f"modelforge profile create --file {shlex.quote(str(file))}")
    return Exit.OK if found is not None else Exit.USAGE


def _check_text(app: App, file: Path, found: RuntimeProfile | None, problems: Sequence[Problem]) -> str:
    if found is not None:
        head = app.out.style(f"VALID: profile {found.name} ({text.short(found.digest())})", "ok")
        return f"{head}\n{text.card(_field_pairs(found), indent=0)}"
    lines = [app.out.style(text.fit(f"INVALID: {text.count(len(problems), 'problem')} in {file}", _COLUMNS), "fail")]
    for problem in problems:
        lines += text.wrap(f"{problem.code}: {told(problem)}", _COLUMNS, rest="  ")
    return "\n".join(lines)


@profile.command("list", cls=Command)
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Newest ones only.")
@click.pass_obj
def list_(app: App, limit: int) -> None:
    """List the profiles, newest first; each version is one of its own."""
    reply = with_operator(app, lambda operator: operator.call(verbs.PROFILES_LIST, Page(limit=limit)))
    found = reply.profiles

    def rows() -> str:
        moment = now()
        return text.table(
            ("PROFILE", "ID", "ADAPTER", "TASK", "DEVICE", "DTYPE", "BATCH", "TOKENS", "AGE", "BY"),
            [
                (
                    f"{one.profile.name}@{one.version}",
                    text.short(one.id),
                    one.profile.adapter,
                    one.profile.task,
                    one.profile.device,
                    one.profile.dtype,
                    one.profile.batch_size,
                    one.profile.max_sequence_length,
                    text.age(one.created_at, moment),
                    one.created_by,
                )
                for one in found
            ],
        )

    app.out.result("profiles", found, rows)
    app.out.truncated(reply, len(found), limit)
    if not found:
        app.next("modelforge profile create NAME")


@profile.command(cls=Command)
@click.argument("name")
@click.option("--toml", "as_toml", is_flag=True, help="As the TOML that `profile create --file` takes.")
@click.pass_obj
def show(app: App, name: str, as_toml: bool) -> None:
    """Show one profile: NAME is the newest version, NAME@2 the second; or an id."""
    view = with_operator(app, lambda operator: operator.call(verbs.PROFILES_SHOW, ById(id=name)))
    if as_toml:
        written = profile_toml(view.profile)
        app.out.result("profile-toml", {"toml": written}, written.rstrip)
        return
    app.out.result("profile", view, lambda: profile_card(view))


def profile_toml(one: RuntimeProfile) -> str:
    """A profile as `create --file` takes it: what comes of it is the same profile."""
    return toml_text.render(msgspec.to_builtins(one))


def profile_card(view: ProfileView) -> str:
    """A profile on the screen: every field, tables last."""
    return text.card(
        [
            ("id", view.id),
            ("version", view.version),
            *_field_pairs(view.profile),
            ("created", f"{text.moment(view.created_at)} by {view.created_by}"),
        ],
        indent=0,
        columns=columns(),
    )


def _field_pairs(one: RuntimeProfile) -> list[tuple[str, object]]:
    fields: dict[str, Any] = msgspec.to_builtins(one)
    tables = {name: fields.pop(name) for name in TABLES}
    pairs: list[tuple[str, object]] = [(key.replace("_", " "), _value(value)) for key, value in fields.items()]
    for name, table in tables.items():
        pairs.append(
            (name, "\n".join(f"{key} {_value(value)}" for key, value in (table or {}).items()) or text.NOTHING)
        )
    return pairs


def _value(value: object) -> object:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return text.NOTHING if value is None else value
