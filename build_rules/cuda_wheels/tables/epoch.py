"""The moment that everything is dated by, where nothing says another."""

from __future__ import annotations

SOURCE_DATE_EPOCH = 315532800
"""1980-01-01, the first moment that a zip archive can hold, in seconds since 1970."""
