"""Names of columns inside one query: each is used once."""

from __future__ import annotations

import re

#: Names that would be mistaken for those of the algebra itself.
_TAKEN = re.compile(r"_hw_.*|rowid", re.IGNORECASE)


class Names:
    """Hands out names, readable and each only once: `price`, then `price_2`.

    Spark does not tell `A` from `a`, so neither is given twice.
    """

    def __init__(self) -> None:
        self._used: dict[str, int] = {}

    def fresh(self, wanted: str) -> str:
        """A new name, like the one that is wanted.

        >>> names = Names()
        >>> names.fresh("a"), names.fresh("A"), names.fresh("sum(x)")
        ('a', 'A_2', 'sum_x')
        """
        base = re.sub(r"\W+", "_", wanted).strip("_") or "value"
        if _TAKEN.fullmatch(base):
            base = f"c_{base.lstrip('_')}"
        count = self._used.get(base.lower(), 0) + 1
        name = base if count == 1 else f"{base}_{count}"
        while count > 1 and name.lower() in self._used:
            count += 1
            name = f"{base}_{count}"
        self._used[base.lower()] = count
        self._used.setdefault(name.lower(), 1)
        return name
