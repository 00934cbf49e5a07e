"""Is a probe's job what its assessment and approval were given for (spec P5, A18)? Pure; asked before anything starts."""

from __future__ import annotations

from bus.errors import ErrorCode, ModelForgeError
from bus.messages.artifacts import Manifest
from bus.messages.jobs import ProbeJob
from bus.messages.profiles import RuntimeEnvironment


def check_job(job: ProbeJob, manifest: Manifest, environment: RuntimeEnvironment) -> None:
    """Pass if the manifest is the one of the approved set and this node still has the assessed environment.

    Args:
        job: what the controller sent.
        manifest: the job's own, or the one that was fetched for it.
        environment: this node's own, as it is now.

    Raises:
        ModelForgeError: ARTIFACT_CHANGED when the manifest is not the one that the approved digest names;
            RUNTIME_INCOMPATIBLE when the packages or the interpreter are others than the assessed ones.
    """
    digest = manifest.digest()
    if digest != job.set_digest:
        message = f"the job's manifest is the one of {digest}, and {job.set_digest} was approved"
        raise ModelForgeError(ErrorCode.ARTIFACT_CHANGED, message, approved=job.set_digest, found=digest)
    own = environment.digest()
    if own != job.environment_id:
        message = (
            f"this node runs the environment {own}, and {job.environment_id} was assessed: "
            "a package, an adapter or the interpreter changed; assess again"
        )
        raise ModelForgeError(ErrorCode.RUNTIME_INCOMPATIBLE, message, assessed=job.environment_id, found=own)
