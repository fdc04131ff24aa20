import pytest

from glit.errors import RecipeError
from glit.evaluation.config import EvaluateConfig
from glit.pipeline.planning.prompts import read_prompt
from glit.pipeline.planning.recipe import load_recipe, load_table, recipe_from_dict
from glit.recipes.config import is_enabled
from glit.recipes.resources import builtin_recipes
from glit.training.config import TrainConfig
from glit.training.objectives import OBJECTIVES


@pytest.mark.parametrize("name", ["mini", "flism", "laptop", "captions"])
def test_built_in_recipes_load(name):
    assert load_recipe(name).name == name


def test_recipes_build_on_others():
    laptop, flism = load_recipe("laptop"), load_recipe("flism")
    assert laptop.caption.backend == "transformers"
    assert laptop.propose.score_threshold == flism.propose.score_threshold
    assert load_recipe("captions").score == flism.score


def test_overrides_are_read_as_toml_else_as_text():
    recipe = load_recipe("mini", overrides=["score.batch_size=7", "score.model=some/model"])
    assert (recipe.score.batch_size, recipe.score.model) == (7, "some/model")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("score.batch_sise=7", "unknown key 'batch_sise'; did you mean 'batch_size'"),
        ("scor.model=x", "did you mean 'score'"),
        ("score.batch_size=many", r"want int"),
        ("score.batch_size=0", "batch_size: found 0, want >= 1"),
        ("caption.backend=vlm", "did you mean 'vllm'"),
        ("score.batch_size", "want table.key=value"),
        ("propose.exact_masks=1", "want bool"),
        ("propose.min_area=0.9", "min_area < max_area"),
        ("ingest.max_pixels=" + "9" * 5000, "^--set ingest.max_pixels: no value .Exceeds"),
        ("ingest.max_pixels=" + "[" * 5000, "^--set ingest.max_pixels: no value .*recursion"),
    ],
)
def test_mistakes_name_the_way_out(override, message):
    with pytest.raises(RecipeError, match=message):
        load_recipe("mini", overrides=[override])


def test_unknown_recipe_names_the_nearest():
    with pytest.raises(RecipeError, match="did you mean 'flism'"):
        load_recipe("flizm")


def test_a_file_with_an_unknown_table(tmp_path):
    file = tmp_path / "own.toml"
    file.write_text('base = "mini"\n[proposal]\nx = 1\n')
    with pytest.raises(RecipeError, match=r"did you mean 'propose'"):
        load_recipe(str(file))


@pytest.mark.parametrize("text", ["a=" + "[" * 5000, "x=" + "9" * 5000, "a = \x00", "\udcff"])
def test_a_hostile_file_is_refused_in_one_line(tmp_path, text, run_glit):
    file = tmp_path / "own.toml"
    file.write_bytes(text.encode(errors="surrogateescape"))
    for words in (("recipes", file), ("trust", file), ("doctor", tmp_path, "-r", file)):
        done = run_glit(*words)
        assert (done.code, done.errors.count("\n")) == (2, 1), (words, done)
        assert "not valid TOML" in done.errors


def test_files_that_a_recipe_names_lie_in_its_folder(tmp_path, monkeypatch):
    folder = tmp_path / "recipes"
    folder.mkdir()
    (folder / "ask.txt").write_text("Describe it.")
    (folder / "own.toml").write_text(
        'base = "glit-mini"\n[caption]\nprompt = "ask.txt"\n[rights]\nenabled = true\nreservations = ["a.json"]\n'
        '[exclude]\nenabled = true\nlists = ["l.txt", "/abs/m.txt"]\n'
    )
    (tmp_path / "more.toml").write_text('base = "recipes/own.toml"\n')
    monkeypatch.chdir(tmp_path)
    for name in ("recipes/own.toml", "more.toml", str(folder / "own.toml")):
        found = load_recipe(name)
        at = str(folder) if name.startswith("/") else "recipes"
        assert (
            found.caption.prompt == f"{at}/ask.txt" and read_prompt(found.caption) == "Describe it."
        )
        assert found.exclude.lists == (f"{at}/l.txt", "/abs/m.txt")
        assert found.pair.calibration == "mini-scenes"
    monkeypatch.chdir(folder)
    assert load_recipe("own.toml", overrides=["caption.prompt=x/y.txt"]).caption.prompt == "x/y.txt"


def test_a_circle_of_bases_is_found(tmp_path):
    (tmp_path / "a.toml").write_text('base = "b.toml"\n')
    (tmp_path / "b.toml").write_text('base = "a.toml"\n')
    with pytest.raises(RecipeError, match="circle"):
        load_recipe(str(tmp_path / "a.toml"))


def test_not_toml(tmp_path):
    file = tmp_path / "own.toml"
    file.write_text("[[[")
    with pytest.raises(RecipeError, match="not valid TOML"):
        load_recipe(str(file))


def test_round_trip_through_plain_values():
    for name in builtin_recipes():
        recipe = load_recipe(name)
        again = recipe_from_dict(recipe.as_dict())
        for step, table in recipe.tables.items():
            assert again.tables[step] == table or not is_enabled(table)


def test_there_is_a_recipe_for_every_objective():
    assert {load_table(TrainConfig, name).objective for name in builtin_recipes()} == set(
        OBJECTIVES
    )


def test_a_setting_that_nobody_reads_is_refused():
    with pytest.raises(RecipeError, match=r"'train.lr=3': a build does not read \[train\]"):
        load_recipe("mini", overrides=["train.lr=3"])
    with pytest.raises(RecipeError, match=r"glit eval does not read \[score\] .it reads evaluate"):
        load_table(EvaluateConfig, "mini", overrides=["score.model=mini-matcher"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[train]\nepoch = 3\n", "[train]: unknown key 'epoch'; did you mean 'epochs'?"),
        ("[train]\nlr = 0.0\n", "[train] lr: found 0.0, want above 0"),
        ("[trian]\n", "unknown table [trian]; did you mean 'train'?"),
        ("train = 3\n", "train = 3, want a table: [train]"),
    ],
)
def test_errors_name_the_file(tmp_path, text: str, said: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(RecipeError) as caught:
        load_table(TrainConfig, str(path))
    assert str(caught.value) == f"{path}: {said}"
    path.write_text("")
    with pytest.raises(RecipeError, match="^--set"):
        load_table(TrainConfig, str(path), overrides=["trian.lr=1"])
    path.write_text("[pair]\nrul = 1\n")
    with pytest.raises(RecipeError) as caught:
        load_recipe(str(path))
    assert str(caught.value).startswith(f"{path}: [pair]: unknown key 'rul'")


@pytest.mark.parametrize(
    ("content", "overrides", "said"),
    [
        ('base = "mini"\n[exclude]\nlists = ["l.txt"]\n', [],
         "exclude.lists: would change nothing, since .exclude. is off; set exclude.enabled = true"),
        ('base = "mini"\n', ['exclude.lists=["l.txt"]'], "exclude.lists: would change nothing"),
        ('base = "mini"\n[quality]\nenabled = false\n', ["quality.min_entropy=1"],
         "--set quality.min_entropy: quality.enabled = false turns .quality. off"),
        ('base = "mini"\n[exclude]\nenabled = false\nlists = ["l.txt"]\n', [], ""),
        ('base = "mini"\n', ["quality.enabled=false", "quality.min_entropy=1"], ""),
    ],
)  # fmt: skip
def test_keys_of_a_step_that_is_off_are_refused_unless_it_says_so(
    tmp_path, content, overrides, said
):
    """A list of test images that excludes nothing would be found after the training."""
    file = tmp_path / "mine.toml"
    file.write_text(content)
    if not said:
        assert not load_recipe(str(file), overrides=overrides).tables["exclude"].enabled
        return
    with pytest.raises(RecipeError, match=said):
        load_recipe(str(file), overrides=overrides)
