"""``kbindex diff --queries``: whose answers move between two trees."""

from __future__ import annotations

import json

from testing.repositories import Repo

QUESTIONS = [
    {"id": "oil", "query": "which oil burns", "relevant": [{"id": "lamps"}]},
    {"id": "wipe", "query": "how to wipe glass", "relevant": [{"id": "lenses"}]},
]


def make(repo: Repo) -> None:
    repo.write("bundle/lamps.md", "# Lamps\n\nThe oil that burns is paraffin.\n")
    repo.write("bundle/lenses.md", "# Lenses\n\nWipe the glass with linen.\n")
    repo.git("add", "--all")
    assert repo.call("init", "--hooks", "native").code == 0
    repo.commit("first")
    repo.write("q.jsonl", "\n".join(map(json.dumps, QUESTIONS)))


def test_a_question_whose_answer_moves_is_listed_with_its_rank(repo: Repo) -> None:
    make(repo)
    repo.write("bundle/oils.md", "# Which oil burns\n\nWhich oil burns? Which oil burns best?\n")
    repo.commit("another answer")
    done = repo.call("diff", "HEAD~1", "HEAD", "--queries", "q.jsonl", "--format", "json")
    assert done.code == 0, done.err
    answers = done.json()["answers"]
    assert answers["questions"] == 2
    moved = {move["id"]: move for move in answers["moved"]}
    assert moved["oil"]["before"][0] == {"id": "lamps", "section": "lamps"}
    assert moved["oil"]["after"][0] == {"id": "oils", "section": "which-oil-burns"}
    assert moved["oil"]["answer_rank"] == {"before": 1, "after": 2}
    text = repo.call("diff", "HEAD~1", "HEAD", "--queries", "q.jsonl").out
    assert "oil which oil burns (answer at 2, was 1)" in text
    assert "  after: oils#which-oil-burns, lamps#lamps" in text


def test_an_edit_that_moves_no_answer_lists_none(repo: Repo) -> None:
    make(repo)
    repo.write("bundle/lenses.md", "# Lenses\n\nWipe the glass with clean linen.\n")
    repo.git("add", "--all")
    assert repo.call("update").code == 0
    answers = repo.call("diff", "--queries", "q.jsonl", "--format", "json").json()["answers"]
    assert answers == {"questions": 2, "moved": []}
    text = repo.call("diff", "--queries", "q.jsonl", "--format", "markdown").out
    assert "- answers move for 0 of 2 questions" in text


def test_trees_of_two_embedders_are_compared_by_words_and_it_is_said(repo: Repo) -> None:
    make(repo)
    repo.write("kbindex.toml", 'embedder = "hash"\nchunk_tokens = 64\n')
    recipe = (repo.root / ".kbindex/recipe.json").read_text()
    repo.write(".kbindex/recipe.json", recipe.replace("feature-hashing", "another"))
    repo.git("add", "--all")
    done = repo.call("diff", "HEAD", "staged", "--queries", "q.jsonl", "--format", "json")
    assert done.code == 0, done.err
    assert "words alone" in done.err


def test_a_tree_without_an_index_has_no_answers(repo: Repo) -> None:
    repo.write("README", "nothing yet\n")
    repo.commit("nothing")
    make(repo)
    done = repo.call("diff", "HEAD~1", "HEAD", "--queries", "q.jsonl", "--format", "json")
    assert done.code == 0, done.err
    assert [move["before"] for move in done.json()["answers"]["moved"]] == [[], []]


def test_a_question_file_that_can_not_be_read_is_refused(repo: Repo) -> None:
    make(repo)
    assert repo.call("diff", "--queries", "nonesuch.jsonl").code == 2
