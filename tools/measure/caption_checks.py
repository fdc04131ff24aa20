"""Count good and broken captions that the checks of written captions catch, before and now.

python -m tools.measure.caption_checks CAPTIONS.jsonl     of each kind: caught by checks 1, by 2

Half of the broken captions, told as ``seen``, were looked at when the limits were chosen; the
others have other texts, phrases and seeds, and were not.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from glit.text.faults import caption_fault

REFUSALS = (
    ("As an AI language model, I do not see pictures.", "I cannot describe this person.",
     "I'm sorry, but I can't help with that.", "Please provide an image to describe.",
     "Unfortunately, I am not able to see more."),
    ("As a large language model I have no eyes.", "I am unable to identify the people here.",
     "I’m sorry, I can’t assist with this request.", "No image was provided.",
     "However, I cannot provide more details."),
)  # fmt: skip
FOREIGN = {
    "German": (
        ("Auf dem Bild ist ein großer Hund zu sehen.", "Er liegt auf einer grünen Wiese.",
         "Im Hintergrund stehen zwei Bäume und ein Haus.", "Der Himmel ist blau und klar."),
        ("Eine Frau sitzt an einem Tisch in der Küche.", "Sie hält eine Tasse mit der Hand.",
         "Links von ihr hängt ein Bild an der Wand.", "Das Licht kommt durch das Fenster."),
    ),
    "French": (
        ("Un grand chien est couché sur la pelouse.", "Derrière lui se trouvent deux arbres.",
         "Le ciel est bleu et il y a des nuages.", "Une maison est visible à gauche."),
        ("Une femme est assise à la table de la cuisine.", "Elle tient une tasse dans la main.",
         "Un tableau est accroché au mur.", "La lumière entre par la fenêtre."),
    ),
    "Spanish": (
        ("Un perro grande está tumbado en el césped.", "Detrás de él hay dos árboles.",
         "El cielo es azul y hay algunas nubes.", "A la izquierda se ve una casa."),
        ("Una mujer está sentada a la mesa de la cocina.", "Tiene una taza en la mano.",
         "Hay un cuadro en la pared.", "La luz entra por la ventana."),
    ),
    "Chinese": (
        ("一只大狗躺在绿色的草地上。", "它后面有两棵树。", "天空是蓝色的,有几朵云。",
         "左边有一座房子。"),
        ("一个女人坐在厨房的桌子旁。", "她手里拿着一个杯子。", "墙上挂着一幅画。",
         "光线从窗户照进来。"),
    ),
    "Russian": (
        ("Большая собака лежит на зелёной траве.", "За ней стоят два дерева.",
         "Небо голубое с облаками.", "Слева виден дом."),
        ("Женщина сидит за столом на кухне.", "Она держит чашку в руке.", "На стене висит картина.",
         "Свет падает из окна."),
    ),
}  # fmt: skip


def broken(captions: list[str], half: int) -> Iterator[tuple[str, str]]:
    """Kinds of faults, and captions that have them."""
    dice = random.Random(half)
    for text in captions[half::2]:
        words = text.split()
        size, times = dice.randint(1, 8), dice.randint(4, 30)
        first = dice.randrange(max(1, len(words) - size))
        loop = words[first : first + size] * times
        where = dice.choice((0, len(words) // 2, len(words)))
        few = "4 to 7" if times < 8 else "8 to 30"
        yield f"local loop, {few} times", " ".join([*words[:where], *loop, *words[where:]])
        parts = [part.strip() for part in text.split(". ") if part.strip()]
        again = dice.choice(parts)
        yield "repeated lines", "\n".join([*parts, *[again] * dice.randint(3, 12)])
        parts.insert(len(parts) // 2 or 1, dice.choice(REFUSALS[half]).rstrip("."))
        yield "refusal in the middle", ". ".join(parts)
        yield "cut off", text[: dice.randrange(len(text) // 2, len(text) - 1)]
        language = dice.choice(list(FOREIGN))
        sentences = list(FOREIGN[language][half])
        dice.shuffle(sentences)
        yield f"in {language}", " ".join(sentences[: dice.randint(2, 4)])
        yield "goes on in Chinese", text[: len(text) // 4] + "".join(FOREIGN["Chinese"][half])


def main() -> None:
    """Print the counts of good captions, and of broken ones by kind and half."""
    with Path(sys.argv[1]).open(encoding="utf-8") as lines:
        captions = [json.loads(line)["caption"] for line in lines]
    counts: dict[tuple[str, str], list[int]] = {}
    given = [("good", "all", text) for text in captions]
    for half, name in enumerate(("seen", "held out")):
        given += [(kind, name, text) for kind, text in broken(captions, half)]
    for kind, name, text in given:
        row = counts.setdefault((kind, name), [0, 0])
        row[:] = row[0] + 1, row[1] + (caption_fault(text) is not None)
    for (kind, name), (number, caught) in sorted(counts.items()):
        print(f"{kind:28}{name:10}{number:5}{caught:5}")


if __name__ == "__main__":
    main()
