"""What somebody would write without us: hash the files, load the model, encode one text. Run in a fresh interpreter."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path


def main(folder: Path, text: str) -> None:
    """Print the length of the vector, so that a failure cannot look like a fast success."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                hashlib.file_digest(file, "sha256")
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415 -- hashing comes first, as in a probe

    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True, trust_remote_code=False)
    print(len(model.encode(text)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
