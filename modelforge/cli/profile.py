"""`modelforge profile`: how a set is to be run, stored once and never changed."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import rich_click as click

from bus import verbs
from bus.errors import ErrorCode, ModelForgeError
from bus.files import read_bounded
from bus.ids import check_name, now
from bus.messages.api import ById, Page, ProfileRequest
from bus.messages.profiles import Budgets, RuntimeProfile
from bus.settings import MAX_FILE_BYTES
from modelforge import format as text
from modelforge.cli.command import App, Command
from modelforge.cli.session import with_operator

if TYPE_CHECKING:
    from bus.messages.profiles import ProfileView


@click.group()
def profile() -> None:
    """Create, list and show runtime profiles."""


@profile.command(cls=Command)
@click.argument("name", required=False)
@click.option(
    "--file",
    "file",
    type=click.Path(path_type=Path),
    metavar="TOML",
    help="Profile as TOML with the fields that `profile show --json` prints; flags win over it.",
)
@click.option("--adapter", help="Adapter that loads the set.  [sentence_transformers]")
@click.option("--device", type=click.Choice(("cpu", "cuda")), help="Where it runs.  [cpu]")
@click.option("--gpu-uuid", help="The card, by UUID; cuda only.")
@click.option("--dtype", type=click.Choice(("float32", "float16", "bfloat16")), help="Of the weights.  [float32]")
@click.option("--batch-size", type=click.IntRange(min=1), help="Inputs per call.  [1]")
@click.option("--max-sequence-length", type=click.IntRange(min=1), help="Tokens per input.  [256]")
@click.option("--normalize/--no-normalize", default=None, help="Unit vectors or not.  [normalize]")
@click.option("--threads", type=click.IntRange(min=1), help="Threads of the child.  [1]")
@click.option(
    "--memory-limit-mib", type=click.IntRange(min=1), help="Limit of the child's private memory (RLIMIT_DATA).  [8192]"
)
@click.option(
    "--reclaim-tolerance-mib", type=click.IntRange(min=0), help="GPU memory that may stay above the baseline.  [64]"
)
@click.option("--preparing-s", type=click.IntRange(min=1), help="Budget of preparing.  [300]")
@click.option("--loading-s", type=click.IntRange(min=1), help="Budget of loading.  [300]")
@click.option("--healthchecking-s", type=click.IntRange(min=1), help="Budget of healthchecking.  [60]")
@click.option("--unloading-s", type=click.IntRange(min=1), help="Budget of unloading.  [30]")
@click.option("--total-s", type=click.IntRange(min=1), help="Budget of the whole probe.  [900]")
@click.pass_obj
def create(app: App, /, name: str | None, file: Path | None, **flags: Any) -> None:
    """Store the profile NAME. The same contents under the same name give the same profile."""
    wanted = build_profile(name, read_toml(file) if file else {}, flags)
    request = ProfileRequest(profile=wanted)
    view = with_operator(app, lambda operator: operator.call(verbs.PROFILES_CREATE, request))
    app.out.result("profile", view, lambda: profile_card(view))
    app.next(f"modelforge assess SET --profile {view.profile.name} --node NODE")


def read_toml(file: Path) -> dict[str, Any]:
    """The fields of a profile file.

    Raises:
        ModelForgeError: CONFIG_UNREADABLE, with line and column for a syntax error.
    """
    try:
        return tomllib.loads(read_bounded(file, MAX_FILE_BYTES).decode())
    except OSError as error:
        raise ModelForgeError(ErrorCode.CONFIG_UNREADABLE, f"{file}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelForgeError(ErrorCode.CONFIG_UNREADABLE, f"{file}: {error}") from error


def build_profile(name: str | None, document: dict[str, Any], flags: dict[str, Any]) -> RuntimeProfile:
    """A profile from a file's fields and the flags that were given; a flag wins.

    Raises:
        ModelForgeError: INVALID_ARGUMENT for a missing name, an unknown field or a wrong value.
    """
    given = {key: value for key, value in flags.items() if value is not None}
    budgets = {key: given.pop(key) for key in Budgets.__struct_fields__ if key in given}
    fields = {**document, **given}
    if name is not None:
        fields["name"] = name
    if "name" not in fields:
        raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, "a profile needs a NAME, as an argument or in the file")
    if not isinstance(fields.get("budgets", {}), dict):
        raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, "`budgets` must be a table of seconds")
    if budgets:
        fields["budgets"] = {**fields.get("budgets", {}), **budgets}
    check_name(str(fields["name"]), "profile")  # before msgspec says the same with a regular expression
    _refuse_unknown(fields, RuntimeProfile.__struct_fields__, "profile")
    _refuse_unknown(fields.get("budgets", {}), Budgets.__struct_fields__, "budgets")
    try:
        return msgspec.convert(fields, RuntimeProfile)
    except msgspec.ValidationError as error:
        raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, f"profile: {error}") from error


def _refuse_unknown(fields: dict[str, Any], known: tuple[str, ...], what: str) -> None:
    """A message from the wire may hold more than we know; a file that a person wrote may not."""
    unknown = sorted(set(fields) - set(known))
    if unknown:
        message = f"{what}: unknown field {unknown[0]!r}; the fields are {', '.join(known)}"
        raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, message)


@profile.command("list", cls=Command)
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Newest ones only.")
@click.pass_obj
def list_(app: App, limit: int) -> None:
    """List the profiles, newest first."""
    reply = with_operator(app, lambda operator: operator.call(verbs.PROFILES_LIST, Page(limit=limit)))
    found = reply.profiles

    def rows() -> str:
        moment = now()
        return text.table(
            ("PROFILE", "ID", "ADAPTER", "DEVICE", "DTYPE", "BATCH", "TOKENS", "AGE", "BY"),
            [
                (
                    one.profile.name,
                    text.short(one.id),
                    one.profile.adapter,
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
@click.pass_obj
def show(app: App, name: str) -> None:
    """Show one profile, by name or id."""
    view = with_operator(app, lambda operator: operator.call(verbs.PROFILES_SHOW, ById(id=name)))
    app.out.result("profile", view, lambda: profile_card(view))


def profile_card(view: ProfileView) -> str:
    """A profile on the screen: every field, budgets last."""
    fields = msgspec.structs.asdict(view.profile)
    budgets = msgspec.structs.asdict(fields.pop("budgets"))
    pairs = [(key.replace("_", " "), text.NOTHING if value is None else value) for key, value in fields.items()]
    return text.card(
        [
            ("id", view.id),
            *pairs,
            ("budgets", "\n".join(f"{key} {value}" for key, value in budgets.items())),
            ("created", f"{text.moment(view.created_at)} by {view.created_by}"),
        ],
        indent=0,
    )
