"""``kbindex eval``: the measures, the question file, gates, tuning and what a report admits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbindex.core.errors import UsageError
from kbindex.evaluation.metrics import (
    CitedSpan,
    Judged,
    Ranking,
    Target,
    fuse_ranks,
    judge,
    measures,
    parse_gate,
    tune,
)
from kbindex.evaluation.questions import Wanted, locate, parse_questions
from kbindex.evaluation.runner import Bench
from kbindex.repo.repository import open_repository
from kbindex.search.hybrid import search
from kbindex.search.request import QueryOptions, Request
from kbindex.view.database import View
from kbindex.view.open import use_view
from testing.repositories import Repo, Template

# Measures


def judged(*targets: Target, answering: tuple[tuple[str, int, int], ...] = ()) -> Judged:
    return Judged("q", None, targets, frozenset(CitedSpan(*span) for span in answering))


def measured(question: Judged, *passages: tuple[str, int, int], k: int = 5) -> dict[str, Any]:
    return measures([question], {"q": ranking(*passages, score=0.5)}, k)


def ranking(*passages: tuple[str, int, int], score: float = 0.0) -> Ranking:
    return Ranking(tuple(CitedSpan(*passage) for passage in passages), score)


def test_documents_are_judged_one_hit_each() -> None:
    found = measured(judged(Target("b"), Target("x")), ("a", 0, 9), ("a", 9, 20), ("b", 0, 9))
    assert found["recall@5"] == 0.5
    assert found["success@5"] == 1.0
    assert found["mrr@10"] == 0.5, "two passages of one document take one place"
    assert found["ndcg@10"] == pytest.approx(0.6309 / 1.6309, abs=1e-3)


def test_what_a_question_does_not_name_is_not_measured() -> None:
    found = measured(judged(Target("a")), ("a", 0, 9))
    assert found["section-hit@5"] is found["span-hit@5"] is found["span-ndcg@10"] is None
    assert found["separation"] is None


@pytest.mark.parametrize(
    ("passage", "is_hit"),
    [(("a", 10, 30), True), (("a", 12, 20), True), (("a", 13, 30), False), (("b", 10, 30), False)],
)
def test_a_span_is_hit_by_a_passage_that_holds_all_of_it(
    passage: tuple[str, int, int], is_hit: bool
) -> None:
    found = measured(judged(Target("a", span=(12, 20))), ("c", 0, 99), passage)
    assert found["span-hit@5"] == is_hit
    at_1 = measured(judged(Target("a", span=(12, 20))), ("c", 0, 99), passage, k=1)
    assert at_1["span-hit@1"] == 0.0


def test_a_section_is_hit_by_a_passage_of_it() -> None:
    question = judged(Target("a", section=(100, 200)))
    assert measured(question, ("a", 150, 200))["section-hit@5"] == 1.0
    assert measured(question, ("a", 90, 120))["section-hit@5"] == 0.0


def test_passages_are_judged_without_collapsing_them() -> None:
    answering = (("a", 0, 9), ("a", 9, 20))
    question = judged(Target("a", span=(5, 12)), answering=answering)
    assert measured(question, ("a", 0, 9), ("a", 9, 20))["span-ndcg@10"] == 1.0
    assert measured(question, ("a", 20, 30), ("a", 0, 9))["span-ndcg@10"] < 0.5


def test_ties_keep_the_order_in_which_they_were_broken() -> None:
    passages = tuple((f"d{n}", 0, 9) for n in (3, 1, 2))
    for place, (path, _, _) in enumerate(passages, start=1):
        assert measured(judged(Target(path)), *passages)["mrr@10"] == 1 / place


def test_separation_is_how_often_the_answerable_score_higher() -> None:
    questions = [Judged("yes", None, (Target("a"),)), Judged("no", None, ())]
    rankings = {"yes": ranking(("a", 0, 1), score=0.7), "no": ranking(("a", 0, 1), score=0.3)}
    assert measures(questions, rankings, 5)["separation"] == 1.0
    rankings["no"] = ranking(("a", 0, 1), score=0.9)
    assert measures(questions, rankings, 5)["separation"] == 0.0


def test_rank_fusion_prefers_what_both_found() -> None:
    a, b, c = (CitedSpan(path, 0, 1) for path in "abc")
    assert fuse_ranks([a, b], [c, b]) == (b, a, c)
    assert fuse_ranks([], []) == ()


# Gates


def test_a_gate_is_read_and_judged() -> None:
    gate = parse_gate(" hybrid:tail/recall@5 >= 0.9", ["hybrid"], "dense")
    assert (gate.mode, gate.kind, gate.measure, gate.bound) == ("hybrid", "tail", "recall@5", 0.9)
    assert judge(gate, 0.9) == "pass"
    assert judge(gate, 0.89) == "fail"
    assert judge(parse_gate("tokens_per_result_set<=100", ["dense"], "dense"), 101.0) == "fail"


def test_a_gate_that_nothing_can_fail_is_no_pass() -> None:
    assert judge(parse_gate("separation>=0", ["dense"], "dense"), None) == "unfalsifiable"


@pytest.mark.parametrize("text", ["", "ndcg@10", "ndcg@10>0.5", "ndcg@10>=x", "rrf:ndcg@10>=0.1"])
def test_what_is_no_gate_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_gate(text, ["hybrid"], "hybrid")


# Tuning


def test_tuning_finds_the_weight_and_tells_what_it_is_worth_elsewhere() -> None:
    questions = [Judged(f"q{n}", None, (Target("a"),)) for n in range(20)]

    def rank(weight: float) -> dict[str, Ranking]:
        order = ("a", "b") if 0.4 < weight < 0.8 else ("b", "a")
        return {q.id: ranking(*((path, 0, 1) for path in order)) for q in questions}

    found = tune(questions, rank, 0.1, (0.0, 0.5, 1.0))
    assert found.weight == 0.5
    assert found.held_out == 1.0
    assert found.present < 1.0
    with pytest.raises(UsageError, match="too few"):
        tune(questions[:5], rank, 0.1, (0.0, 0.5, 1.0))


def test_a_weight_that_only_suits_its_own_questions_is_not_worth_its_figure() -> None:
    """Each weight fails on one fold alone: chosen on the others, it looks perfect."""
    questions = [Judged(f"q{n}", None, (Target("a"),)) for n in range(10)]

    def rank(weight: float) -> dict[str, Ranking]:
        good = {q.id for n, q in enumerate(questions) if n % 5 != weight * 4}
        return {
            q.id: ranking(*((p, 0, 1) for p in (("a", "b") if q.id in good else ("b", "a"))))
            for q in questions
        }

    found = tune(questions, rank, 0.0, (0.0, 0.25, 0.5, 0.75, 1.0))
    assert found.held_out < found.by_weight[found.weight] - 0.2


# The question file


def line(**fields: Any) -> str:
    return json.dumps({"id": "q", "query": "x", "relevant": []} | fields)


def test_a_question_file_is_read() -> None:
    text = line(relevant=[{"id": "a", "section": "s", "span": [1, 2]}], kind="tail") + "\n\n"
    (question,) = parse_questions(text, "f")
    assert question.kind == "tail"
    assert question.relevant == (Wanted("a", "s", (1, 2)),)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no question"),
        ("{", "f:1 is not JSON"),
        ("[]", "f:1 is not a JSON object"),
        (f"{line()}\n{line()}", "called 'q'"),
        (line(query=""), "no text 'query'"),
        (line(query="  "), "asks nothing"),
        (line(id=3), "no text 'id'"),
        ('{"id": "q", "query": "x"}', "no list 'relevant'"),
        (line(relevant=["a"]), "not a JSON object"),
        (line(relevant=[{"section": "s"}]), "no text 'id'"),
        (line(relevant=[{"id": "a", "span": [2, 1]}]), "span"),
        (line(relevant=[{"id": "a", "quotation": "x"}]), "no field 'quotation'"),
        (line(relevant=[{"id": "a", "span": [0, True]}]), "span"),
    ],
)
def test_a_question_file_that_can_not_be_read_is_named_by_line(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words.replace("(", r"\(")):
        parse_questions(text, "f")


def test_a_quote_is_found_once_or_not_at_all() -> None:
    assert locate(Wanted("a", quote="lamp"), "the lamp") == (4, 8)
    assert locate(Wanted("a", span=(1, 3)), "the lamp") == (1, 3)
    assert locate(Wanted("a"), "the lamp") is None
    for text in ("none", "lamp lamp"):
        with pytest.raises(ValueError, match="quote"):
            locate(Wanted("a", quote="lamp"), text)
    assert locate(Wanted("a", span=(4, 8), quote="lamp"), "the lamp") == (4, 8)
    with pytest.raises(ValueError, match="not what stands at its span"):
        locate(Wanted("a", span=(0, 3), quote="lamp"), "the lamp")
    with pytest.raises(ValueError, match="behind the end"):
        locate(Wanted("a", span=(1, 30)), "the lamp")


# The verb


@pytest.fixture
def asked(from_template: Template) -> Repo:
    """Three documents, indexed, and ``q.jsonl`` with a question on each."""

    def fill(repo: Repo) -> None:
        for name, word in (("lamps", "paraffin"), ("lenses", "linen"), ("horns", "brass")):
            repo.write(f"bundle/{name}.md", f"# {name}\n\n## Use\n\nIt needs {word} every week.\n")
        repo.git("add", "--all")
        assert repo.call("init", "--hooks", "none").code == 0
        questions = [
            {
                "id": name,
                "kind": "easy",
                "query": f"who needs {word}",
                "relevant": [{"id": name, "section": "use", "quote": f"needs {word}"}],
            }
            for name, word in (("lamps", "paraffin"), ("lenses", "linen"), ("horns", "brass"))
        ]
        write_questions(repo, questions)

    return from_template("asked", fill)


def write_questions(repo: Repo, questions: list[dict[str, Any]]) -> None:
    repo.write("q.jsonl", "\n".join(map(json.dumps, questions)))


def test_a_report_measures_each_mode_and_kind(asked: Repo) -> None:
    done = asked.call("eval", "q.jsonl", "--format", "json", "--modes", "lexical,dense,hybrid,rrf")
    assert done.code == 0, done.err
    report = done.json()
    assert report["questions"] == 3
    for mode in ("lexical", "hybrid", "rrf"):
        assert report["modes"][mode]["ndcg@10"] == 1.0
        assert report["modes"][mode]["span-hit@5"] == 1.0
    assert report["kinds"]["easy"]["questions"] == 3
    assert report["coverage"] == report["round_trip"] == 1.0
    assert report["citations"] > 3
    assert report["tokens_per_result_set"] > 100
    assert report["missed"] == []
    assert any("hash" in item for item in report["open"])


def test_the_text_names_modes_misses_gates_and_open_items(asked: Repo) -> None:
    write_questions(asked, [{"id": "q1", "query": "zeppelin", "relevant": [{"id": "lamps"}]}])
    done = asked.call("eval", "q.jsonl", "--modes", "lexical", "--gate", "recall@5>=0.5")
    assert done.code == 1
    assert "lexical" in done.out
    assert "missed by lexical: q1" in done.out
    assert "gate recall@5>=0.5: 0.000 fail" in done.out
    assert "open: 1 answered questions name no span" in done.out


def test_whole_documents_are_a_mode_to_compare_with(asked: Repo) -> None:
    done = asked.call("eval", "q.jsonl", "--modes", "document", "--format", "json")
    assert done.code == 0, done.err
    assert done.json()["modes"]["document"]["span-hit@5"] == 1.0
    assert done.json()["modes"]["document"]["span-ndcg@10"] is None


def test_gates_decide_the_exit_code(asked: Repo) -> None:
    def gate(*gates: str) -> int:
        options = [option for text in gates for option in ("--gate", text)]
        return asked.call("eval", "q.jsonl", *options).code

    assert gate("ndcg@10>=0.9", "lexical:easy/recall@5>=0.9") == 2, "kinds are of the main mode"
    assert gate("ndcg@10>=0.9", "easy/recall@5>=0.9", "lexical:mrr@10>=0.9") == 0
    assert gate("ndcg@10>=0.9", "tokens_per_result_set<=10") == 1
    assert gate("separation>=0.0") == 1, "unfalsifiable is not passed"
    assert gate("hard/recall@5>=0.0") == 1, "no question is of this kind"
    assert gate("nonesuch>=0.0") == 2


def test_questions_that_do_not_fit_the_bundle_are_refused(asked: Repo) -> None:
    for relevant, words in (
        ({"id": "nonesuch"}, "'nonesuch', which is not indexed"),
        ({"id": "lamps", "section": "nonesuch"}, "no section 'nonesuch'"),
        ({"id": "lamps", "quote": "nonesuch"}, "its quote does not stand there"),
        ({"id": "lamps", "span": [0, 9999]}, "behind the end"),
    ):
        write_questions(asked, [{"id": "q1", "query": "x", "relevant": [relevant]}])
        done = asked.call("eval", "q.jsonl", "--modes", "lexical")
        assert done.code == 2
        assert words in done.err
        assert "q1" in done.err


def test_files_and_modes_that_are_not_there_are_refused(asked: Repo, tmp_path: Path) -> None:
    assert asked.call("eval", "nonesuch.jsonl").code == 2
    assert asked.call("eval", "q.jsonl", "--modes", "magic").code == 2
    (tmp_path / "latin.jsonl").write_bytes(b"\xff\xfe")
    assert asked.call("eval", str(tmp_path / "latin.jsonl")).code == 2


def test_another_embedder_than_that_of_the_index_is_refused_but_words_are_measured(
    asked: Repo,
) -> None:
    done = asked.call("eval", "q.jsonl", KBINDEX_EMBEDDER="builtin")
    assert done.code == 3
    words = asked.call("eval", "q.jsonl", "--modes", "lexical", KBINDEX_EMBEDDER="builtin")
    assert words.code == 0


def test_tune_names_the_weight_and_its_worth(asked: Repo) -> None:
    questions = [
        {"id": f"q{n}", "query": f"who needs {word}", "relevant": [{"id": name}]}
        for n in range(4)
        for name, word in (("lamps", "paraffin"), ("lenses", "linen"), ("horns", "brass"))
        for n in [f"{n}{name}"]
    ]
    write_questions(asked, questions)
    done = asked.call("eval", "q.jsonl", "--tune", "--format", "json")
    assert done.code == 0, done.err
    tuning = done.json()["tuning"]
    assert tuning["measure"] == "ndcg@10"
    assert 0.0 <= tuning["weight"] <= 1.0
    assert len(tuning["by_weight"]) == 21
    assert "tuning: ndcg@10" in asked.call("eval", "q.jsonl", "--tune").out


def test_a_citation_that_leads_elsewhere_is_counted(asked: Repo) -> None:
    def citations(view: View) -> list[bool]:
        repository = open_repository(asked.root)
        options = QueryOptions(with_text=True)
        request = Request("linen", None, 0.0, with_words=True, options=options)
        hit = search(view, repository.config, request).hits[0]
        moved = replace(hit, char_start=hit.char_start + 1)
        other = replace(hit, anchor="lenses", char_start=0, text="# lenses\n\n" + str(hit.text))
        wrong = replace(hit, anchor="use", char_start=0, text=other.text)
        return [Bench(repository, view).leads_back(h) for h in (hit, moved, other, wrong)]

    assert use_view(open_repository(asked.root), citations) == [True, False, True, False]


def test_coverage_is_the_share_of_the_text_that_has_a_vector(asked: Repo) -> None:
    asked.write("bundle/new.md", "# A heading with words\n\nAnd text that nobody embedded.\n")
    asked.git("add", "--all")
    done = asked.call("eval", "q.jsonl", "--modes", "lexical", "--format", "json")

    def size(name: str) -> int:
        return len("".join((asked.root / "bundle" / f"{name}.md").read_text().split()))

    indexed = sum(map(size, ("lamps", "lenses", "horns")))
    assert done.json()["coverage"] == pytest.approx(indexed / (indexed + size("new")))
    assert "1 documents are not indexed as they are staged" in done.json()["open"]
