"""The delta store: small files of changes beside a base, merged when read, folded in by compaction."""
