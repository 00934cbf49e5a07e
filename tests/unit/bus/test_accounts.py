from __future__ import annotations

import pytest

from bus.accounts import NodeKey, UserKey, node_services, permissions, render_accounts
from bus.errors import ErrorCode, ModelForgeError
from bus.verbs import USER_VERBS


def key(letter: str) -> str:
    return "U" + letter * 55


def user(name: str, role: str, letter: str) -> UserKey:
    return UserKey(name, role, key(letter))  # type: ignore[arg-type]  # roles come from parametrize as plain text


def test_the_controller_may_do_everything_in_the_central_account() -> None:
    assert permissions(user("controller", "controller", "A")) is None


def test_the_responder_publishes_to_inboxes_only() -> None:
    allowed = permissions(user("responder", "responder", "A"))
    assert allowed is not None
    assert allowed.publish == ("_INBOX.>", "_R_.>")
    assert allowed.subscribe == ("mf.api.>", "$SRV.>")


def test_a_viewer_may_call_the_queries_and_none_of_the_commands() -> None:
    allowed = permissions(user("victor", "viewer", "A"))
    assert allowed is not None
    calls = {subject for subject in allowed.publish if subject.startswith("mf.")}
    assert calls == {f"mf.api.user.victor.{verb.name}" for verb in USER_VERBS if verb.effect == "query"}


@pytest.mark.parametrize("role", ["operator", "viewer"])
def test_people_may_publish_nothing_that_changes_a_stream(role: str) -> None:
    allowed = permissions(user("alice", role, "A"))
    assert allowed is not None
    changing = ("CREATE", "UPDATE", "DELETE", "PURGE", "RESTORE", "NEXT", "$JS.ACK", "mf.jobs", "mf.evidence")
    assert [subject for subject in allowed.publish if any(word in subject for word in changing)] == []


@pytest.mark.req("B2")
def test_a_node_reaches_its_own_subjects_and_no_wildcard_over_nodes() -> None:
    services = node_services("gpu-1")
    assert all("gpu-1" in subject for subject in services)
    assert not any("*" in subject for subject in services)
    assert len([subject for subject in services if "MSG.NEXT" in subject]) == 3
    # `a` is a beginning of `a-work`: the token must be whole.
    assert not set(node_services("a")) & set(node_services("a-work"))


def test_every_identity_is_rendered_once() -> None:
    text = render_accounts(
        [user("controller", "controller", "A"), user("alice", "operator", "B")], [NodeKey("gpu-1", key("C"))]
    )
    for letter in "ABC":
        assert text.count(key(letter)) == 1
    assert "NODE_gpu-1 {" in text


@pytest.mark.parametrize(
    ("users", "nodes"),
    [
        ([user("a", "operator", "A"), user("a", "viewer", "B")], []),
        ([user("a", "operator", "A"), user("b", "operator", "A")], []),
        ([user("a", "operator", "A")], [NodeKey("a", key("A"))]),
        ([], [NodeKey("a", key("A")), NodeKey("a", key("B"))]),
        ([], [NodeKey("7", key("A"))]),
        ([], [NodeKey("a.b", key("A"))]),
        ([UserKey("a", "operator", "SUAM")], []),
        ([UserKey("a", "operator", key("A") + ' } { "x')], []),
    ],
    ids=["user twice", "key twice", "key shared", "node twice", "numeric node", "dotted node", "seed", "injection"],
)
def test_bad_identities_are_refused(users: list[UserKey], nodes: list[NodeKey]) -> None:
    with pytest.raises(ModelForgeError) as raised:
        render_accounts(users, nodes)
    assert raised.value.code is ErrorCode.INVALID_ARGUMENT
