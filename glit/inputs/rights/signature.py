"""Check the signature of a picture's C2PA manifest by c2pa-python, the extra ``c2pa``.

``valid`` means that picture and manifest are those that were signed. By whom, the signer's
certificate says; whether to trust its issuer is not decided here.
"""

from __future__ import annotations

import io
import json
from typing import Any

_TYPES = {b"\xff\xd8": "image/jpeg", b"\x89P": "image/png", b"RI": "image/webp",
          b"II": "image/tiff", b"MM": "image/tiff"}  # fmt: skip


def check_signature(data: bytes) -> tuple[str, str | None]:
    """Return ``valid`` or ``invalid``, and the organisation that signed.

    Nothing is fetched: a picture that names a manifest elsewhere is not looked up.
    """
    from c2pa import C2paError, Context, Reader, Settings  # pyright: ignore[reportMissingImports]

    offline = Settings.from_dict({"verify": {"remote_manifest_fetch": False, "ocsp_fetch": False}})
    kind = _TYPES.get(data[:2], "image/heif" if data[8:11] in (b"hei", b"mif") else "image/avif")
    try:
        with Reader(kind, io.BytesIO(data), context=Context(offline)) as reader:
            found: dict[str, Any] = json.loads(reader.json())
    except (C2paError, ValueError):
        return "invalid", None
    active = found.get("manifests", {}).get(found.get("active_manifest"), {})
    signer = active.get("signature_info", {}).get("issuer")
    is_valid = found.get("validation_state") in ("Valid", "Trusted")
    return ("valid" if is_valid else "invalid"), signer
