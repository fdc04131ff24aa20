"""Query a dataset with DuckDB, read-only and without access to other files.

Statements may come from anywhere, so a connection reads the dataset's Parquet files and no other
file, writes nothing, and its settings cannot be changed back.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import re
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator

import duckdb
import pyarrow as pa

from glit.data.bounded_parquet import BoundedParquet, TooMuch
from glit.dataset.reader import Dataset
from glit.dataset.row_checks import is_grounded_schema
from glit.dataset.sql_files import PROTOCOL, DatasetFiles
from glit.errors import DatasetError, UserError, first_line

VIEWS: dict[str, str] = {
    "samples": "SELECT * FROM read_parquet({data}, hive_partitioning = false)",
    "sentences": """
        SELECT sample_id, source_path, sentence, s.*, image_similarity
        FROM (SELECT sample_id, source_path,
                     (generate_subscripts(sentences, 1) - 1)::INTEGER AS sentence,
                     unnest(sentences) AS s, unnest(image_similarity) AS image_similarity
              FROM samples)""",
    "regions": """
        SELECT sample_id, source_path, region, r.*,
               (r.x1 - r.x0) * (r.y1 - r.y0) / (width::DOUBLE * height) AS area_ratio
        FROM (SELECT sample_id, source_path, width, height,
                     (generate_subscripts(regions, 1) - 1)::INTEGER AS region,
                     unnest(regions) AS r
              FROM samples)""",
    "pairs": """
        SELECT sample_id, source_path, rank, p.sentence, p.region, p.similarity, p.global_wins,
               p.probability AS probability, p.support AS support,
               sentences[p.sentence + 1].text AS text,
               r.x0 AS x0, r.y0 AS y0, r.x1 AS x1, r.y1 AS y1,
               r.score AS score, r.label AS label, r.source AS source
        FROM (SELECT *, CASE WHEN NOT p.global_wins THEN regions[p.region + 1] END AS r
              FROM (SELECT sample_id, source_path, sentences, regions,
                           (generate_subscripts(pairs, 1) - 1)::INTEGER AS rank, unnest(pairs) AS p
                    FROM samples))""",
    "drops": "SELECT * FROM read_parquet({drops}, hive_partitioning = false)",
    "duplicates": "SELECT * FROM read_parquet({duplicates}, hive_partitioning = false)",
}
"""The views in order; ``pairs.rank`` is 0 for a sample's best pair. A sentence without a region
(``global_wins``) has no box, label or source."""
FURTHER_VIEWS: dict[str, str] = {
    "phrases": """
        SELECT sample_id, source_path, phrase, p.*
        FROM (SELECT sample_id, source_path,
                     (generate_subscripts(phrases, 1) - 1)::INTEGER AS phrase,
                     unnest(phrases) AS p
              FROM samples)""",
    "groundings": """
        SELECT sample_id, source_path, g.phrase, g.region, g.score,
               phrases[g.phrase + 1].sentence AS sentence, phrases[g.phrase + 1].text AS text,
               regions[g.region + 1].x0 AS x0, regions[g.region + 1].y0 AS y0,
               regions[g.region + 1].x1 AS x1, regions[g.region + 1].y1 AS y1,
               regions[g.region + 1].source AS source
        FROM (SELECT sample_id, source_path, phrases, regions, unnest(groundings) AS g
              FROM samples)""",
}
"""Views of datasets with a grounder, which have columns of these names."""

NUMBER = "row_number_in_dataset"
"""The column of the row number, see :func:`numbered`."""

_LONGEST_TEXT = 2000
"""Characters of a text of drops or duplicates that pages show."""
_NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
"""The nodes of queries in DuckDB's parse tree, which may hold no others; COPY and INSERT may stand
in one as well."""
_TABLE_FUNCTIONS = frozenset(
    {
        "unnest", "range", "generate_series", "repeat", "repeat_row", "json_each", "json_tree",
        "read_parquet", "parquet_scan", "histogram", "histogram_values", "summary",
    }
)  # fmt: skip
"""Functions that read at most the files that a connection may read, and run no further SQL."""

_UNKNOWN_COLUMN = re.compile(r'(?:Referenced column|a column named) "([^"]+)"')


@contextlib.contextmanager
def connect(dataset: Dataset) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a connection with :func:`open_connection` and close it after the block. Texts of drops
    and duplicates are cut: a stranger's may have megabytes.

    Raises:
        DatasetError: the rows hold values that a statement of ours cannot work with.
    """
    with open_connection(dataset) as connection, _damage(dataset):
        for name in ("drops", "duplicates"):
            columns = connection.table(name)
            texts = [
                f'left("{column}", {_LONGEST_TEXT}) AS "{column}"'
                for column, kind in zip(columns.columns, columns.types, strict=True)
                if str(kind) == "VARCHAR"
            ]
            connection.execute(f"ALTER VIEW {name} RENAME TO whole_{name}")
            connection.execute(
                f"CREATE VIEW {name} AS SELECT * REPLACE ({', '.join(texts)}) FROM whole_{name}"
            )
        yield connection


@contextlib.contextmanager
def _damage(dataset: Dataset) -> Iterator[None]:
    """Translate what DuckDB says of files and rows that a statement of ours cannot read.

    Raises:
        DatasetError: see above.
    """
    try:
        yield
    except duckdb.Error as error:
        raise DatasetError(
            f"{dataset.path}: its rows cannot be counted ({first_line(error)}); run "
            "'glit verify' and repair the dataset"
        ) from error


def open_connection(dataset: Dataset) -> duckdb.DuckDBPyConnection:
    """Open a DuckDB connection with :data:`VIEWS` that can access only the dataset's files.

    A dataset at an address is read there, by the columns and row groups that a statement needs.

    Raises:
        DatasetError: a file of the dataset is missing or damaged.
    """
    connection = duckdb.connect(config={"python_enable_replacements": "false"})
    if dataset.is_local:
        _check_files(dataset)
        # with it, a query of a million rows in 10,000 row groups took a tenth more CPU time
        connection.execute("SET disable_parquet_prefetching = true")
    else:
        connection.register_filesystem(DatasetFiles(dataset.sizes, dataset.read_range))
    data = [_place(dataset, name) for name in dataset.files]
    left_out = ("drops.parquet", "duplicates.parquet")
    for name in left_out:
        dataset.check_file(name)  # DuckDB would wait for a pipe
    drops, duplicates = (_place(dataset, name) for name in left_out)
    connection.execute(f"SET allowed_paths = {_texts([*data, drops, duplicates])}")
    parts = {
        "data": _texts(data),
        "drops": _texts([drops]),
        "duplicates": _texts([duplicates]),
    }
    with _damage(dataset):
        grounded = is_grounded_schema(dataset.schema)
        further = FURTHER_VIEWS if grounded else {}
        for name, sql in (VIEWS | further).items():
            connection.execute(f"CREATE VIEW {name} AS {sql.format_map(parts)}")
    lock_down(connection)
    return connection


def _check_files(dataset: Dataset) -> None:
    """Refuse local files whose rows DuckDB would hold by the thousand, whatever they decode to."""
    data = () if dataset.has_checked_pages else dataset.files
    for name in (*data, "drops.parquet", "duplicates.parquet"):
        dataset.check_file(name)  # a pipe would be waited for
        try:
            with BoundedParquet(dataset.full(name)) as file:
                file.check()
        except TooMuch as error:
            raise DatasetError(f"{dataset.path}/{name}: {error}") from error
        except (OSError, ValueError, pa.ArrowException):
            continue  # the query tells of it


def lock_down(connection: duckdb.DuckDBPyConnection) -> None:
    """Take all files from a connection but those it was allowed, for good.

    Large results spill to a folder of its own, readable by this user alone, that is gone with it;
    on a machine without a place for one, nowhere.
    """
    try:
        folder = tempfile.mkdtemp(prefix="glit-query-")
    except OSError:
        folder = ""
    connection.execute(f"SET temp_directory = {_text(folder)}")
    if folder:
        weakref.finalize(connection, shutil.rmtree, folder, ignore_errors=True)
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def query(path: str, sql: str) -> duckdb.DuckDBPyRelation:
    """Run a SELECT over :data:`VIEWS`.

    Raises:
        UserError: no finished dataset, or not a SELECT that DuckDB accepts.
        DatasetError: a file of the dataset is missing or damaged.
    """
    dataset = Dataset(path, check_pages=True)
    connection = open_connection(dataset)
    try:
        check_select(sql, connection)
        # mistakes in the data show now, not when it is printed
        return connection.sql(sql).materialize()
    except (duckdb.Error, RuntimeError) as error:  # the latter of names that are not UTF-8
        read = [view for view in VIEWS if re.search(rf"\b{view}\b", sql)]
        columns = [name for view in read for name in connection.view(view).columns]
        said = sql_fault(error, dict.fromkeys(columns))
        raise UserError(f"query: {said} (views: {', '.join(VIEWS)})") from error


def sql_fault(error: Exception, columns: Iterable[str]) -> str:
    """Return DuckDB's error on a statement, in one line; for an unknown column, with those there
    are.

    >>> sql_fault(duckdb.Error('Referenced column "widht" not found'), ["width", "height"])
    "no column 'widht', did you mean 'width'? columns: width, height"
    """
    found = _UNKNOWN_COLUMN.search(str(error))
    if found is None:
        return first_line(error)
    close = difflib.get_close_matches(found[1], columns := list(columns), n=1)
    hint = f", did you mean {close[0]!r}?" if close else ";"
    return f"no column {found[1]!r}{hint} columns: {', '.join(columns)}"


def numbered(dataset: Dataset) -> str:
    """The SQL source of samples with their row number, :data:`NUMBER`."""
    files = [_place(dataset, name) for name in dataset.files]
    firsts = [str(first) for first in dataset.first_rows().values()]
    rows = (
        f"read_parquet({_texts(files)}, filename = true, file_row_number = true, "
        "hive_partitioning = false)"
    )
    place = f"[{', '.join(firsts)}][list_position({_texts(files)}, filename)]"
    return f"(SELECT *, {place} + file_row_number AS {NUMBER} FROM {rows}) AS samples"


def _place(dataset: Dataset, name: str) -> str:
    """Return the name of a file in DuckDB."""
    return dataset.full(name) if dataset.is_local else f"{PROTOCOL}://{name}"


def check_select(sql: str, connection: duckdb.DuckDBPyConnection) -> None:
    """Check that the text is one SELECT and nothing else, by DuckDB's own parse tree.

    DuckDB also calls a statement a SELECT if one of its parts writes: a common table expression
    may be a COPY. So every query in it has to be one that reads, and every function in the place of
    a table has to be known.

    Args:
        sql: the text.
        connection: parses it, and runs nothing of it.

    Raises:
        UserError: it is not.
        duckdb.Error: DuckDB cannot read it.
    """
    kinds = [each.type for each in duckdb.extract_statements(sql)]
    found = ", ".join(kind.name for kind in kinds) or "nothing"
    if kinds == [duckdb.StatementType.SELECT]:
        found = _what_does_more_than_read(sql, connection)
    if found:
        raise UserError(f"query: found {found}; want one SELECT, which reads and writes nothing")


def _what_does_more_than_read(sql: str, connection: duckdb.DuckDBPyConnection) -> str:
    """The first part of a SELECT that may do more than read; empty if there is none."""
    ((text,),) = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchall()
    try:
        tree = json.loads(text)
    except RecursionError:
        return "too deep a nesting"
    if tree["error"]:
        return str(tree["error_message"])
    rest = [tree["statements"]]
    while rest:
        part = rest.pop()
        if isinstance(part, list):
            rest.extend(part)
        elif isinstance(part, dict):
            kind = str(part.get("type", ""))
            if kind.endswith("_NODE") and kind not in _NODES:
                return kind.removesuffix("_NODE").replace("_", " ")
            if kind == "TABLE_FUNCTION":
                name = str(part["function"].get("function_name")).lower()
                if name not in _TABLE_FUNCTIONS:
                    return f"the table function {name}"
            rest.extend(part.values())
    return ""


def _texts(values: list[str]) -> str:
    """A list of texts in SQL."""
    return "[" + ", ".join(map(_text, values)) + "]"


def _text(value: str) -> str:
    """A text in SQL."""
    return "'" + value.replace("'", "''") + "'"
