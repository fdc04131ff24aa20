"""Fine-tune CLIP on a glit dataset.

``pooling``, ``losses`` and ``objectives`` are pure functions of arrays; ``preprocess``, ``packing``
and ``encoder`` turn a batch into embeddings in one vision pass and one text pass; ``source``,
``order`` and ``loader`` bring the batches in from the Parquet shards; ``step``, ``checkpoint`` and
``loop`` are the run. Importing this package loads no model library.
"""

from __future__ import annotations
