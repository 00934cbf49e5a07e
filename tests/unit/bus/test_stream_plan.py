from __future__ import annotations

from typing import Any

import pytest

from bus.stream_plan import merged, plan_consumer, plan_stream
from bus.streams import STREAMS, evidence_consumer, lane_consumers

JOBS = dict(STREAMS[0])
WORK = dict(lane_consumers("local", ack_wait_s=30, slots=2)[0])


def test_equal_configurations_need_nothing() -> None:
    for declared in STREAMS:
        plan = plan_stream(
            declared, {**declared, "sealed": False, "metadata": {"_nats.ver": "2", **declared["metadata"]}}
        )
        assert not plan.changes
        assert not plan.drift


def test_what_the_server_leaves_out_counts_as_off() -> None:
    actual = {key: value for key, value in JOBS.items() if key != "max_age"}
    assert not plan_stream(JOBS, actual).changes


@pytest.mark.parametrize(
    "change",
    [
        {"description": "old words"},
        {"metadata": {}},
        {"max_bytes": 1},
        {"max_consumers": 1_000},
        {"max_msg_size": 1_000_000},
        {"duplicate_window": 1},
        {"allow_direct": False},
        {"subjects": []},
        {"discard": "old"},
    ],
)
def test_harmless_differences_are_changed(change: dict[str, Any]) -> None:
    plan = plan_stream(JOBS, {**JOBS, **change})
    assert plan.changes == set(change)
    assert not plan.drift


@pytest.mark.parametrize(
    "change",
    [
        {"retention": "limits"},
        {"storage": "memory"},
        {"max_bytes": 1 << 40},
        {"max_bytes": -1},
        {"max_msgs_per_subject": -1},
        {"subjects": ["mf.jobs.*.*.*", "mf.other"]},
        {"persist_mode": "async"},
        {"mirror": {"name": "OTHER"}},
        {"sealed": True},
        {"no_ack": True},
        {"allow_msg_ttl": True},
    ],
)
def test_what_would_lose_messages_is_drift(change: dict[str, Any]) -> None:
    plan = plan_stream(JOBS, {**JOBS, **change})
    assert len(plan.drift) == 1
    assert next(iter(change)) in plan.drift[0]


def test_an_update_keeps_fields_that_nobody_here_knows() -> None:
    config = merged(JOBS, {**JOBS, "first_seq": 42, "future_field": "x", "metadata": {"_nats.ver": "2"}})
    assert config["first_seq"] == 42
    assert config["future_field"] == "x"
    assert config["metadata"] == {"_nats.ver": "2", "product": "modelforge"}


@pytest.mark.parametrize("name", ["backoff", "inactive_threshold", "max_batch"])
def test_what_would_end_a_lease_by_itself_is_put_out(name: str) -> None:
    actual = {**WORK, name: 5}
    assert plan_consumer(WORK, actual).changes == {name}
    assert name not in merged(WORK, actual)


def test_a_consumer_that_acknowledges_differently_is_drift() -> None:
    assert plan_consumer(WORK, {**WORK, "ack_policy": "none"}).drift
    assert plan_consumer(WORK, {**WORK, "deliver_subject": "elsewhere"}).drift
    assert plan_consumer(WORK, {**WORK, "ack_wait": 1}).changes == {"ack_wait"}


def test_lease_consumers_have_no_end_of_their_own() -> None:
    for config in (*lane_consumers("local", ack_wait_s=30, slots=2), evidence_consumer()):
        assert config["max_deliver"] == -1
        assert config["ack_policy"] == "explicit"
        assert not {"backoff", "inactive_threshold"} & set(config)


def test_the_lanes_do_not_overlap() -> None:
    filters = {config["filter_subject"] for config in lane_consumers("local", ack_wait_s=30, slots=2)}
    assert filters == {f"mf.jobs.local.{lane}.*" for lane in ("work", "control", "invoke")}
