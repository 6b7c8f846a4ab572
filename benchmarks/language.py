"""How well is a text's language told, by kbindex and by another library?

    python benchmarks/language.py FOLDER [--words 10]

``FOLDER`` holds a folder a language, named by its ISO 639-1 code, with text files in it. Notes of
so many words are cut from them; half of them, drawn by a fixed seed, chooses each detector's
threshold, and the other half is reported: the share told right, told wrong, and left unsaid, which
costs a document its stems while a wrong stemmer costs more. lingua is left out where
lingua-language-detector is not installed. Also: seconds to the first answer in a new
process, and milliseconds a note after that.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

from kbindex.analysis.language import detect_language, known_languages, named_language

Detect = Callable[[str], tuple[str | None, float]]
"""Returns the language and how sure the detector is."""

WRONG_COSTS = 3.0
"""How many documents without stems are as bad as one with another language's."""


def ours() -> Detect:
    """Return what views use: py3langid with a fixed threshold."""
    return lambda text: (detect_language(text), 1.0)


def py3langid() -> Detect:
    """Return py3langid with its own probability, so that a threshold can be chosen."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)

    def detect(text: str) -> tuple[str | None, float]:
        code, probability = identifier.classify(text)
        return named_language(code), float(probability)

    return detect


def lingua() -> Detect:
    from lingua import LanguageDetectorBuilder

    detector = LanguageDetectorBuilder.from_all_languages().build()

    def detect(text: str) -> tuple[str | None, float]:
        best = detector.compute_language_confidence_values(text)[0]
        return named_language(best.language.iso_code_639_1.name), best.value

    return detect


DETECTORS: dict[str, tuple[str, Callable[[], Detect]]] = {
    "ours": ("kbindex", ours),
    "py3langid": ("py3langid", py3langid),
    "lingua": ("lingua", lingua),
}


def notes(folder: Path, n_words: int) -> Iterator[tuple[str, str | None]]:
    """Yield (text, language) of notes cut from the files; other languages than stemmed are None."""
    for language in sorted(path for path in folder.iterdir() if path.is_dir()):
        words: list[str] = []
        for file in sorted(language.iterdir()):
            words += re.sub(r"\s+", " ", file.read_text(encoding="utf-8")).split(" ")
        for at in range(0, len(words) - n_words, n_words):
            yield " ".join(words[at : at + n_words]), named_language(language.name)


def score(
    found: list[tuple[str | None, float]], wanted: list[str | None], least: float
) -> tuple[float, float, float]:
    """Return the shares told right, told wrong and left unsaid, of languages with a stemmer.

    A note in another language is right if nothing is said of it.
    """
    right = wrong = unsaid = 0
    for (language, sure), expected in zip(found, wanted, strict=True):
        said = language if sure >= least else None
        right += said == expected
        wrong += said is not None and said != expected
        unsaid += said is None and expected is not None
    return right / len(wanted), wrong / len(wanted), unsaid / len(wanted)


def first_answer(name: str) -> float:
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import language; "
        f"language.DETECTORS[{name!r}][1]()('The lamp is lit at dusk by the keeper of the tower')"
    )
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--words", type=int, nargs="*", default=[5, 10, 20, 50])
    arguments = parser.parse_args()
    print(f"{len(known_languages())} languages have a stemmer")
    print(f"{'words':>5} {'notes':>6}  {'detector':<10} {'least':>6} {'right':>6} {'wrong':>6} "
          f"{'unsaid':>6} {'ms':>7}  {'first s':>7}")  # fmt: skip
    for n_words in arguments.words:
        every = list(notes(arguments.folder, n_words))
        random.Random(1).shuffle(every)
        every = every[:8000]
        half = len(every) // 2
        for name, (package, make) in DETECTORS.items():
            if find_spec(package) is None:
                continue
            detect = make()
            began = time.perf_counter()
            found = [detect(text) for text, _ in every]
            taken = (time.perf_counter() - began) / len(every)
            wanted = [language for _, language in every]

            def cost(least: float, f: list = found, w: list = wanted, h: int = half) -> float:
                _, wrong, unsaid = score(f[:h], w[:h], least)
                return WRONG_COSTS * wrong + unsaid

            least = min((step / 20 for step in range(20)), key=cost)
            right, wrong, unsaid = score(found[half:], wanted[half:], least)
            print(f"{n_words:5} {len(every) - half:6}  {name:<10} {least:6.2f} {right:6.3f} "
                  f"{wrong:6.3f} {unsaid:6.3f} {1000 * taken:7.2f}  {first_answer(name):7.2f}",
                  flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
