"""The prefixes that models expect before queries and documents; other models get none.

Each comes from the model's card, for retrieval; the settings ``query_prefix`` and
``document_prefix`` win over the table.
"""

from __future__ import annotations

import re

_REPRESENT = "Represent this sentence for searching relevant passages: "
_INSTRUCT = (
    "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
)

# The first that matches the model's name without namespace and tag counts.
_TABLE = (
    (r"e5-mistral", f"{_INSTRUCT} ", ""),  # Wang et al. 2024, arXiv:2401.00368
    (r"(^|-)e5(-|$)", "query: ", "passage: "),  # Wang et al. 2022, arXiv:2212.03533
    (r"^nomic-embed-text", "search_query: ", "search_document: "),
    (r"^mxbai-embed", _REPRESENT, ""),
    (r"^bge-m3", "", ""),
    (r"^bge-(small|base|large)", _REPRESENT, ""),  # the English ones, v1.5
    (r"^snowflake-arctic-embed2", "query: ", ""),
    (r"^snowflake-arctic-embed", _REPRESENT, ""),
    (r"^embeddinggemma", "task: search result | query: ", "title: none | text: "),
    (r"^qwen3-embedding", _INSTRUCT, ""),
)


def model_prefixes(model: str) -> tuple[str, str]:
    """Return the prefixes for a query and for a document."""
    name = model.rsplit("/", 1)[-1].split(":", 1)[0].lower()
    for pattern, query, document in _TABLE:
        if re.search(pattern, name):
            return query, document
    return "", ""
