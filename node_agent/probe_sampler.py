"""Samples at the fixed points of a probe, and the look at the memory after its end (spec P7, P8)."""

from __future__ import annotations

import asyncio
from typing import Final

from bus.ids import now
from bus.messages.evidence import GpuSample, HostMemory, Reclaim, Sample, SamplePoint
from bus.messages.profiles import RuntimeProfile
from node_agent.measure.host import read_host_memory
from node_agent.measure.nvml import Discovery, Gpu
from node_agent.measure.reclaim import Ending, watch_reclaim, without_gpu

_MIB: Final = 1024 * 1024
NO_CHILD_YET: Final = HostMemory(reason="there is no child yet")
GONE: Final = HostMemory(reason="the child has ended")
ON_CPU: Final = "the profile asks for the CPU"


class ProbeSampler:
    """Takes the samples of one attempt; they go into `samples` in the order in which they were taken.

    Attributes:
        gpu_reason: why no card is sampled; `None` when one is.
    """

    def __init__(self, profile: RuntimeProfile, cards: Discovery) -> None:
        self.samples: list[Sample] = []
        self.gpu_reason: str | None = None
        self._gpu: Gpu | None = None
        self._tolerance_bytes = profile.reclaim_tolerance_mib * _MIB
        if profile.device == "cpu":
            self.gpu_reason = ON_CPU
        elif (uuid := choose_card(profile, cards)) is None:
            self.gpu_reason = cards.reason or "this node does not have the card of the profile"
        else:
            self._gpu = Gpu(uuid)

    @property
    def gpu_uuid(self) -> str | None:
        """The card that is sampled."""
        return self._gpu.uuid if self._gpu is not None else None

    async def take(self, point: SamplePoint, pid: int | None) -> None:
        """Sample the host memory of `pid` and the card; what cannot be read is a reason, never an error."""
        pids = (pid,) if pid is not None else ()
        gpu = await asyncio.to_thread(self._gpu.sample, pids) if self._gpu is not None else None
        host = await asyncio.to_thread(read_host_memory, pid) if pid is not None else NO_CHILD_YET
        self.samples.append(Sample(point=point, at=now(), host=host, gpu=gpu))

    async def reclaim(self, ending: Ending, pid: int, *, wait_s: float) -> Reclaim:
        """Was everything given back? Takes the last sample too; waits at most `wait_s` for a card."""
        after: GpuSample | None = None
        baseline = next((sample.gpu for sample in self.samples if sample.point is SamplePoint.BASELINE), None)
        if self._gpu is None or baseline is None:
            verdict = without_gpu(ending)
        else:
            gpu = self._gpu
            verdict, after = await watch_reclaim(
                baseline,
                lambda: asyncio.to_thread(gpu.sample, (pid,)),
                ending,
                tolerance_bytes=self._tolerance_bytes,
                wait_s=wait_s,
            )
        # The pid of a process that is gone may be a stranger's by now.
        host = GONE if ending.process_gone else await asyncio.to_thread(read_host_memory, pid)
        self.samples.append(Sample(point=SamplePoint.AFTER_EXIT, at=now(), host=host, gpu=after))
        return verdict


def choose_card(profile: RuntimeProfile, cards: Discovery) -> str | None:
    """The UUID of the card to use: the profile's own, if it is there, else the first of the node."""
    uuids = [gpu.uuid for gpu in cards.gpus]
    if profile.gpu_uuid is not None:
        return profile.gpu_uuid if profile.gpu_uuid in uuids else None
    return uuids[0] if uuids else None
