"""The text of Spark's SQL as a tree: sqlglot's, with what it would not read or would leave to the engine.

`window` is a word of a clause for sqlglot, and for Spark also a function and the name of what it gives.
"""

from __future__ import annotations

import sqlglot
from sqlglot import exp
from sqlglot.dialects.dialect import DialectType
from sqlglot.dialects.spark import Spark
from sqlglot.tokenizer_core import Token, TokenType

from headwater.algebra.time_windows import without_time_windows


class SparkSql(Spark):
    """Spark's dialect, where WINDOW is a clause only before a name and AS."""

    def tokenize(self, sql: str, dialect: DialectType = None) -> list[Token]:
        """Spark's tokens."""
        tokens = super().tokenize(sql, dialect)
        return [
            _as_name(token) if _is_window(token) and not _is_clause(tokens, place) else token
            for place, token in enumerate(tokens)
        ]


def parsed(text: str) -> list[exp.Expr]:
    """The statements of a text, with time windows as the expressions that they stand for."""
    return [without_time_windows(tree) for tree in sqlglot.parse(text, read=SparkSql) if tree is not None]


def _is_window(token: Token) -> bool:
    return token.token_type is TokenType.WINDOW


def _is_clause(tokens: list[Token], place: int) -> bool:
    after = [token.token_type for token in tokens[place + 1 : place + 3]]
    return len(after) == 2 and after[1] is TokenType.ALIAS and after[0] is not TokenType.L_PAREN


def _as_name(token: Token) -> Token:
    return Token(
        TokenType.VAR, token.text, token.line, token.col, token.start, token.end, list(token.comments)
    )


__all__ = ["SparkSql", "parsed"]
