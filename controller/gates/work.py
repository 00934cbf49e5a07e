"""Putting a job into the ledger and the outbox, once for each request."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from bus.codec import encode
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.jobs import MAX_JOB_BYTES, AnyJob
from bus.subjects import Caller, Lane
from controller.store.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A job to be queued: what travels, under which request, and how long and how often it may be tried."""

    type: Literal["scan", "probe"]
    job: AnyJob
    request_key: str
    max_attempts: int
    deadline_at: datetime
    caller: Caller


def known(tx: Tx, request_key: str, type_: Literal["scan", "probe"]) -> str | None:
    """The job that this very request made before, if it did.

    Raises:
        ModelForgeError: INVALID_ARGUMENT when the request id was used for something else.
    """
    row = tx.one("jobs.by_request", request_id=request_key)
    if row is None:
        return None
    if row["type"] != type_:
        raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, "request_id was used for another kind of job")
    return str(row["id"])


def put(tx: Tx, order: Order) -> None:
    """Write the job's row and its outbox row; both or, with the transaction, none.

    Raises:
        ModelForgeError: MESSAGE_TOO_LARGE when the stream would refuse the job: what can never be published must not
            get into the outbox.
    """
    payload = encode(order.job)
    if len(payload) > MAX_JOB_BYTES:
        message = f"the job has {len(payload)} bytes, more than {MAX_JOB_BYTES}: the set has too many files"
        raise ModelForgeError(ErrorCode.MESSAGE_TOO_LARGE, message)
    tx.run(
        "jobs.insert",
        id=order.job.job_id,
        request_id=order.request_key,
        type=order.type,
        node=order.job.node,
        lane=Lane.WORK,
        payload=payload.decode(),
        max_attempts=order.max_attempts,
        queued_by=order.caller.name,
        queued_at=tx.at,
        deadline_at=order.deadline_at,
    )
    tx.put_job(node=order.job.node, lane=Lane.WORK, job_id=order.job.job_id, payload=payload)
