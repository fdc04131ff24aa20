"""A file that tells a set of images by hashes and thumbnails, without the images.

Parquet with a row for each image: ``name``, ``sha256`` of the file's bytes (32 bytes), and
``thumbnail`` (4,096 bytes of grey). With embeddings also ``embedding``, L2-normalised, of the model
whose name and SHA-256 are in the file's metadata.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float32

from glit.data.bounded_parquet import BoundedParquet
from glit.data.limits import IMAGES_BYTES
from glit.data.meaning import most_alike
from glit.data.parquet import PINNED
from glit.data.resemblance import THUMBNAIL_PX, References, Thumbnail, Thumbnails
from glit.errors import InputError, first_line

_BYTES = THUMBNAIL_PX**2
MEANING = "meaning"
NO_THUMBNAIL: Thumbnail = np.zeros((THUMBNAIL_PX, THUMBNAIL_PX), np.uint8)
"""Thumbnail of a reference of which only the hash is known: one colour, which resembles nothing."""
_SCHEMA = pa.schema(
    [("name", pa.string()), ("sha256", pa.binary(32)), ("thumbnail", pa.binary(_BYTES))],
    metadata={"glit.references": "1"},
)
_MODEL, _SHA256 = b"glit.model", b"glit.model_sha256"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """An image of a list."""

    name: str
    sha256: str
    """SHA-256 of the file's bytes, hex."""
    thumbnail: Thumbnail
    embedding: Float32[np.ndarray, " D"] | None = None
    """By the list's model, if it has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceMatch:
    """A reference that an image is, or resembles."""

    name: str
    kind: str
    """The way the image was recognised: ``same file``; ``same picture`` and how it was changed; or
    ``meaning``, by its embedding."""
    correlation: float
    """Correlation of the thumbnails; 1 for the same file; for ``meaning`` the cosine of the
    embeddings."""

    @property
    def likeness(self) -> str:
        """The correlation, or what else it is, in words."""
        return f"{'cosine ' * (self.kind == MEANING)}{self.correlation:.3f}"


def list_bytes(references: Sequence[Reference], *, model: str = "", sha256: str = "") -> bytes:
    """The file of a list, sorted by name.

    Args:
        references: the images, all with an embedding if there is a model.
        model: the name of the model.
        sha256: of its weights.
    """
    ordered = sorted(references, key=lambda each: (each.name, each.sha256))
    columns = [
        [each.name for each in ordered],
        [bytes.fromhex(each.sha256) for each in ordered],
        [each.thumbnail.tobytes() for each in ordered],
    ]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, _SCHEMA, strict=True)]
    schema = _SCHEMA
    if model:
        values = np.stack([np.asarray(each.embedding, np.float32) for each in ordered])
        kind = pa.list_(pa.field("element", pa.float32()), values.shape[1])
        arrays.append(pa.FixedSizeListArray.from_arrays(values.ravel(), type=kind))
        told = {**(_SCHEMA.metadata or {}), _MODEL: model.encode(), _SHA256: sha256.encode()}
        schema = _SCHEMA.append(pa.field("embedding", kind)).with_metadata(told)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), sink, **PINNED)
    return sink.getvalue().to_pybytes()


class ReferenceList:
    """Images that are not wanted, to compare others with.

    Args:
        data: of a file that ``glit overlap`` wrote.
        path: the file's, for messages.

    Raises:
        InputError: it is no such file.
    """

    def __init__(self, data: bytes, path: str) -> None:
        self.sha256 = hashlib.sha256(data).hexdigest()
        try:
            most = max(IMAGES_BYTES, 8 * len(data))
            table = BoundedParquet(pa.BufferReader(data), most=most).read()
        except (pa.ArrowException, OSError, ValueError) as error:
            raise InputError(f"{path}: no list of references ({first_line(error)})") from error
        plain = table.select([name for name in table.column_names if name != "embedding"])
        if not plain.schema.equals(_SCHEMA) or any(each.null_count for each in plain.columns):
            raise InputError(
                f"{path}: no list of references; make one of images with 'glit overlap IMAGES "
                "-o LIST.parquet'"
            )
        self._names: list[str] = table["name"].to_pylist()
        self._digests: list[bytes] = table["sha256"].to_pylist()
        self._number = {digest: n for n, digest in enumerate(self._digests)}
        self._thumbnails = _thumbnails(table["thumbnail"])
        self._references = References(self._thumbnails)
        told = table.schema.metadata or {}
        self.model = told.get(_MODEL, b"").decode(errors="replace")
        self.model_sha256 = told.get(_SHA256, b"").decode(errors="replace")
        self.path, self._embeddings = path, None
        if "embedding" in table.column_names:
            self._embeddings = _embeddings(table["embedding"], path)

    def __len__(self) -> int:
        return len(self._names)

    def named(self, name: str) -> Reference:
        """The first image of this name."""
        number = self._names.index(name)
        digest = self._digests[number].hex()
        return Reference(name=name, sha256=digest, thumbnail=self._thumbnails[number])

    def find(
        self,
        sample_ids: Sequence[str],
        thumbnails: Sequence[Thumbnail],
        *,
        embeddings: Float32[np.ndarray, "N D"] | None = None,
        cosine: float = 1.0,
    ) -> list[ReferenceMatch | None]:
        """Return for each image the reference that it is or resembles, if there is one.

        Args:
            sample_ids: SHA-256 of the images' files, hex.
            thumbnails: of the images, by :func:`glit.data.resemblance.thumbnail`.
            embeddings: of the images by the list's model, if they are to be compared too.
            cosine: from which two embeddings mean the same.
        """
        if not thumbnails:
            return []
        resembled = self._references.resembled(np.stack(thumbnails))
        alike: list[tuple[int, float] | None] = [None] * len(sample_ids)
        if embeddings is not None and self._embeddings is not None:
            if embeddings.shape[1] != self._embeddings.shape[1]:
                raise InputError(
                    f"{self.path}: its embeddings have {self._embeddings.shape[1]} numbers, the "
                    f"model's {embeddings.shape[1]}; write the list anew"
                )
            alike = most_alike(embeddings, self._embeddings, least=cosine)
        found: list[ReferenceMatch | None] = []
        for sample_id, other, meant in zip(sample_ids, resembled, alike, strict=True):
            same = self._number.get(bytes.fromhex(sample_id))
            if same is not None:
                found.append(
                    ReferenceMatch(name=self._names[same], kind="same file", correlation=1.0)
                )
            elif other is not None:
                name = self._names[other.reference]
                found.append(
                    ReferenceMatch(name=name, kind=other.kind, correlation=other.correlation)
                )
            elif meant is not None:
                name = self._names[meant[0]]
                found.append(ReferenceMatch(name=name, kind=MEANING, correlation=meant[1]))
            else:
                found.append(None)
        return found

    def check_model(self, name: str, sha256: str) -> None:
        """Refuse a model whose embeddings cannot be compared with those of the list.

        Raises:
            InputError: the list has no embeddings, or those of another model.
        """
        if self._embeddings is None:
            raise InputError(
                f"{self.path}: has no embeddings to compare; write it anew with 'glit overlap "
                f"IMAGES -o LIST.parquet --model {name}'"
            )
        if self.model_sha256 != sha256:
            raise InputError(
                f"{self.path}: its embeddings are of model {self.model!r} (SHA-256 "
                f"{self.model_sha256[:12]}), not of {name!r} ({sha256[:12]}); name that model, or "
                "write the list anew with this one"
            )


def _embeddings(column: pa.ChunkedArray, path: str) -> Float32[np.ndarray, "N D"]:
    """Raises InputError: they are no numbers, or some are not finite."""
    kind = column.type
    if not pa.types.is_fixed_size_list(kind) or kind.value_type != pa.float32():
        raise InputError(f"{path}: its column 'embedding' holds {kind}; write the list anew")
    values = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    if len(values) != len(column) * kind.list_size or not np.isfinite(values).all():
        raise InputError(f"{path}: an embedding is not finite; write the list anew")
    values = values.reshape(-1, kind.list_size)
    if not np.allclose(np.linalg.norm(values.astype(np.float64), axis=1), 1, atol=1e-3):
        raise InputError(f"{path}: an embedding is not of length 1; write the list anew")
    return values


def _thumbnails(column: pa.ChunkedArray) -> Thumbnails:
    data = b"".join(column.to_pylist())
    return np.frombuffer(data, np.uint8).reshape(-1, THUMBNAIL_PX, THUMBNAIL_PX)
