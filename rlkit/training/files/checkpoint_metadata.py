"""`CheckpointMetadata`: what is stored with a checkpoint, besides its arrays."""

import dataclasses
import functools
import json
import os
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from rlkit.errors import CheckpointError
from rlkit.training.config import ENVIRONMENTS_LIMIT, Plan
from rlkit.training.health import Health
from rlkit.training.run_progress import RunProgress
from rlkit.validation import PlainData


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointMetadata:
    """What the Trainer stores with a checkpoint, besides its arrays.

    Stored as one flat JSON object: the fields of `progress` are merged into the others.
    """

    progress: RunProgress
    plan: Plan
    num_seeds: int
    normalize_observations: bool  # whether the policy holds observation statistics
    logger: PlainData  # see `Logger.state`
    description: PlainData  # the run as plain data, see `describe`
    fingerprint: PlainData  # what must agree for a resumed run to be bit-identical
    versions: dict[str, str]
    callbacks: PlainData = dataclasses.field(default_factory=dict)  # see `callback_states`
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    """The latest of training and evaluation by then, averaged over seeds; finite ones alone."""
    health: Health = dataclasses.field(default_factory=Health)
    """What the checks of its health have seen by then."""
    has_started: bool = True  # whether the state before the first outer iteration was reported
    environments: Annotated[int, Field(ge=0, le=ENVIRONMENTS_LIMIT)] | None = None
    """Bytes of the environments on the host; None: they are not saved, or part of the state."""
    devices_per_seed: int = 1  # that the state is of
    seed_shares: int = 1  # in which devices trained the seeds
    processes: int = 1  # whose devices they are
    replay: bool = True  # whether the replay memory is saved, as it always was in early ones

    def to_metadata(self) -> PlainData:
        """Plain data for `Checkpointer.save`."""
        fields = dataclasses.asdict(self)
        return fields.pop("progress") | fields

    @classmethod
    def from_metadata(
        cls, metadata: PlainData, directory: str | os.PathLike[str]
    ) -> "CheckpointMetadata":
        """The inverse of `to_metadata`, for a checkpoint in `directory`; ignores unknown fields.

        Raises `CheckpointError` if a field is missing or has the wrong type.
        """
        text = json.dumps(metadata | {"progress": metadata})
        try:
            return _adapter().validate_json(text, strict=True)
        except ValidationError as error:
            problem = error.errors()[0]
            field = ".".join(str(part) for part in problem["loc"] if part != "progress")
            reason = problem["msg"][0].lower() + problem["msg"][1:]
            raise CheckpointError(
                f"the metadata of a checkpoint in {os.fspath(directory)} cannot be read ({field}:"
                f" {reason}); use a checkpoint that this version's Trainer saved"
            ) from None


@functools.cache
def _adapter() -> TypeAdapter[CheckpointMetadata]:
    return TypeAdapter(CheckpointMetadata)
