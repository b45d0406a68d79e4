"""The calls of an open Headwater, part by part; `engine.headwater` puts them together."""
