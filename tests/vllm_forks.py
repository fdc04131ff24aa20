"""Programs with vLLM in forks of one process that has imported it, which takes ten seconds.

Run as a script, it starts what each line of JSON asks for, and says how it ends.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import runpy
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HTTP_ENVIRONMENT = {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}


class VllmForks:
    """The process, as tests see it; it is started when first asked."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def start(self, program: str, arguments: Sequence[object], output: Path) -> int:
        """Start one of the ``PROGRAMS``; return the number of its process.

        Args:
            program: its name.
            arguments: texts.
            output: the file for both of its streams.
        """
        return self._ask({
            "program": program, "arguments": list(map(str, arguments)), "output": str(output),
        })  # fmt: skip

    def is_running(self, number: int) -> bool:
        """Return whether it has not ended by itself."""
        return bool(self._ask({"alive": number}))

    def wait(self, number: int) -> int:
        """Wait until it ends; return its exit code, below zero for a signal."""
        return self._ask({"wait": number})

    def run(self, program: str, arguments: Sequence[object], output: Path) -> None:
        """Run one to its end, which has to be a good one."""
        code = self.wait(self.start(program, arguments, output))
        assert code == 0, output.read_text(encoding="utf-8")[-3000:]

    def _ask(self, asked: dict[str, Any]) -> int:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        assert self._process.stdin and self._process.stdout
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.communicate()


@contextlib.contextmanager
def vllm_forks() -> Iterator[VllmForks]:
    """One, for as long as it is needed."""
    with contextlib.closing(VllmForks()) as process:
        yield process


def glit_lines(file: str) -> None:
    """Run the command lines of a file of JSON, one after the other."""
    from glit.cli.main import main

    for words in json.loads(Path(file).read_text(encoding="utf-8")):
        sys.argv = ["glit", *words]
        try:
            main()
        except SystemExit as end:
            if end.code:
                raise
        gc.collect()  # the next engine starts a group of processes of its own


def http_server(*words: str) -> None:
    """vLLM's own server, as ``python -m`` starts it."""
    os.environ.update(HTTP_ENVIRONMENT)
    sys.argv = ["api_server", *words]
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__", alter_sys=True)


def tiny_captioners(folder: str, output: str) -> None:
    """Write what vLLM says of three images with each of the tiny captioners, as JSON."""
    import tiny_captioners

    Path(output).write_text(json.dumps(tiny_captioners.by_vllm(Path(folder))), encoding="utf-8")


PROGRAMS = {"glit": glit_lines, "http": http_server, "tiny": tiny_captioners}


def _become(program: str, arguments: Sequence[str], output: str) -> None:
    """Run the program, and end this process."""
    code = 1
    try:
        written = os.open(output, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        for number in (1, 2):
            os.dup2(written, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        PROGRAMS[program](*arguments)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - it is the last thing that the process says
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _serve() -> None:
    import vllm
    import vllm.entrypoints.openai.api_server

    assert vllm.LLM is not None and len(os.listdir("/proc/self/task")) == 1, "forks want one thread"
    gc.freeze()
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        asked = json.loads(line)
        if "program" in asked:
            found = os.fork()
            if not found:
                _become(**asked)
        elif "alive" in asked:
            found = int(
                os.waitid(os.P_PID, asked["alive"], os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
            )
        else:
            found = os.waitstatus_to_exitcode(os.waitpid(asked["wait"], 0)[1])
        print(found, file=answers, flush=True)


if __name__ == "__main__":
    _serve()
