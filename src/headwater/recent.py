"""What was made a moment ago, kept for who asks for it again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """So many things, by what they are made of; the one that was not used for longest goes first.

    Two threads may make the same thing at once: then one of the two is kept.
    """

    def __init__(self, most: int):
        self.most = most
        self._things: OrderedDict[Key, Value] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """The thing of a key, made if it is not known."""
        with self._lock:
            if key in self._things:
                self._things.move_to_end(key)
                return self._things[key]
        made = make()
        self.put(key, made)
        return made

    def known(self, key: Key) -> Value | None:
        """The thing of a key, if it is known."""
        with self._lock:
            if key in self._things:
                self._things.move_to_end(key)
            return self._things.get(key)

    def put(self, key: Key, value: Value) -> None:
        """Keep a thing."""
        with self._lock:
            self._things[key] = value
            self._things.move_to_end(key)
            while len(self._things) > self.most:
                self._things.popitem(last=False)

    def __len__(self) -> int:
        return len(self._things)
