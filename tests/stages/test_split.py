"""Split's table in a recipe."""

from __future__ import annotations

import pytest

from glit.errors import RecipeError
from glit.stages.split import SplitConfig


@pytest.mark.parametrize("language", ["english", "EN", ""])
def test_what_is_no_language_code_is_refused(language):
    """sentencex takes anything, and the repairs for English would be left out."""
    with pytest.raises(RecipeError, match=f"found '{language}', want a code such as 'en'"):
        SplitConfig(language=language)
    assert SplitConfig(language=language, splitter="dot").language == language
    assert SplitConfig(language="de").language == "de"
