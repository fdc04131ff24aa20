"""How long a silent worker is waited for."""

from __future__ import annotations

from glit.models.backends.captioners.endpoint import ENDPOINT
from glit.models.backends.protocols import CaptionerConfig
from glit.pipeline.executors.hang_timeout import HangTimeout


def test_patience_follows_what_was_heard():
    patience = HangTimeout()
    assert patience.limit_s == 3600
    patience.heard(2.0)
    assert patience.limit_s == 300
    patience.heard(40.0)
    patience.heard(1.0)
    assert patience.limit_s == 800


def test_a_wait_that_ends_by_itself_is_never_taken_for_a_loss():
    patience = HangTimeout(2000.0)
    assert patience.limit_s == 4000
    patience.heard(2.0)
    assert patience.limit_s == 4000


def test_an_endpoint_says_how_long_its_tries_may_take():
    config = CaptionerConfig(endpoint="http://localhost:1/v1", timeout_s=600.0, retries=5)
    assert ENDPOINT.longest_wait_s(config) == 2 * (1 + 5 + 1) * (600 + 60)
