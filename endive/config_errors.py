"""Turns what is wrong with a configuration into lines that name the key, its value and what is allowed."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, get_args

import pydantic

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")

_RENAMED: Final = {
    "catalog.mode": "catalog.type",
    "catalog.compaction_threshold": "catalog.append.compaction_threshold_bytes",
    "catalog.compaction_max_entries": "catalog.append.compaction_max_entries",
    "catalog.log_entry_size": "catalog.append.entry_bytes",
    "transaction.manifest_list_entry_size": "transaction.manifest_list_entry_bytes",
    "transaction.manifest_list_seal_threshold": "transaction.manifest_list_seal_bytes",
    "storage.T_CAS": "storage.latency.catalog.write",
    "storage.T_APPEND": "storage.latency.catalog.write",
    "storage.T_COMPACTION": "catalog.append.compaction_latency",
    "storage.T_METADATA_ROOT": "storage.latency.catalog",
    "storage.T_TABLE_METADATA": "storage.latency.metadata",
    "storage.T_MANIFEST_LIST": "storage.latency.manifest_list",
    "storage.T_MANIFEST_FILE": "storage.latency.manifest_file",
    "storage.T_PUT": "storage.latency",
    "storage.min_latency": "storage.profile",
}
"""Keys of earlier versions of the specification."""


REQUIRED: Final = "missing; it is required"


class ConfigError(Exception):
    """A configuration that cannot be used. Each line of `lines` tells one thing that is wrong."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = tuple(lines)


class Problem(NamedTuple):
    """One thing that is wrong: the key, its value (None: it has none), and what is allowed."""

    key: str
    value: Any
    allowed: str

    def __str__(self) -> str:
        given = "" if self.value is None else f" = {to_toml(self.value)}"
        return f"{self.key}{given}: {self.allowed}"


def to_toml(value: Any) -> str:
    """Return a value as TOML writes it, on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml_key(str(key))} = {to_toml(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(to_toml(entry) for entry in value) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    try:
        return json.dumps(value, ensure_ascii=False)
    except TypeError:
        return str(value)
    except ValueError:
        return "a number of thousands of digits"


def toml_key(part: str) -> str:
    """Return one part of a dotted key, quoted where TOML wants it."""
    return part if _BARE_KEY.fullmatch(part) else json.dumps(part)


def explain(error: pydantic.ValidationError, model: type[pydantic.BaseModel], data: Mapping[str, Any]) -> list[str]:
    """Return a line for each error that pydantic found in `data`."""
    errors = error.errors()
    tables_with_errors = {details["loc"][:-1] for details in errors}
    misspelt = {
        (*details["loc"][:-1], meant)
        for details in errors
        if details["type"] == "extra_forbidden"
        for meant in _close_keys(str(details["loc"][-1]), _known_keys(model, details["loc"][:-1]))
    }

    def follows_from_another(details: Any) -> bool:
        """Whether it is a key that is missing because it is misspelt, or an array short of its bad entries."""
        if details["type"] == "missing":
            return details["loc"] in misspelt
        return details["type"] == "too_short" and details["loc"] in tables_with_errors

    return [_explain_one(details, model, data) for details in errors if not follows_from_another(details)]


def _close_keys(key: str, known: Sequence[str]) -> list[str]:
    return difflib.get_close_matches(key, known, n=1)


def _explain_one(details: Any, model: type[pydantic.BaseModel], data: Mapping[str, Any]) -> str:
    kind: str = details["type"]
    location: tuple[int | str, ...] = details["loc"]
    key = _dotted(_without_union_tags(location, data))
    value, context = details["input"], details.get("ctx", {})
    if kind == "extra_forbidden":
        return _explain_unknown(key, str(location[-1]), _known_keys(model, location[:-1]))
    if kind == "missing":
        return str(Problem(key, None, REQUIRED))
    if kind == "union_tag_invalid":
        return str(Problem(f"{key}.distribution", context["tag"], f"must be one of {context['expected_tags']}"))
    return str(Problem(key, value, _allowed(kind, context, details["msg"])))


def _explain_unknown(key: str, last: str, known: Sequence[str]) -> str:
    if key in _RENAMED:
        return f"{key}: renamed to {_RENAMED[key]}"
    close = _close_keys(last, known)
    hint = f"did you mean {close[0]}? " if close else ""
    return f"{key}: unknown key; {hint}known here: {', '.join(known)}"


def _allowed(kind: str, context: Mapping[str, Any], message: str) -> str:
    """Return what is allowed where pydantic reports an error of `kind`."""
    texts = {
        "greater_than": "must be more than {gt}",
        "greater_than_equal": "must be {ge} or more",
        "less_than_equal": "must be {le} or less",
        "finite_number": "must be a finite number",
        "float_type": "must be a number",
        "int_type": "must be a whole number",
        "bool_type": "must be true or false",
        "string_type": "must be a string",
        "literal_error": "must be one of {expected}",
        "string_pattern_mismatch": "must be letters, digits, '.', '_' and '-', beginning with a letter or digit",
        "model_type": "must be a table",
        "dict_type": "must be a table",
        "union_tag_not_found": 'must be a table such as {{distribution = "fixed", value = 10}}',
        "tuple_type": "must be an array",
        "too_short": "must have {min_length} or more entries",
    }
    bounds = {name: f"{bound:g}" if isinstance(bound, float) else bound for name, bound in context.items()}
    return texts[kind].format(**bounds) if kind in texts else message


def _without_union_tags(location: Sequence[int | str], data: Any) -> list[int | str]:
    """Drop the parts of a location that name no key of `data`, unless it is the last (a missing key)."""
    parts: list[int | str] = []
    for position, part in enumerate(location):
        if part == "[key]":
            break
        if isinstance(data, Mapping) and part in data:
            data = data[str(part)]
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        elif position < len(location) - 1:
            continue
        parts.append(part)
    return parts


def _dotted(parts: Sequence[int | str]) -> str:
    text = ""
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + toml_key(part)
    return text


def _known_keys(model: type[pydantic.BaseModel], location: Sequence[int | str]) -> list[str]:
    """Return the keys of the table at `location`; a union's tag follows the field that holds the union."""
    candidates = [model]
    for part in location:
        if len(candidates) > 1:
            candidates = [candidate for candidate in candidates if _tag_of(candidate) == part]
        elif part in candidates[0].model_fields:
            candidates = list(_models_in(candidates[0].model_fields[str(part)]))
    return list(candidates[0].model_fields)


def _tag_of(model: type[pydantic.BaseModel]) -> Any:
    return model.model_fields["distribution"].default


def _models_in(annotation: Any) -> Iterator[type[pydantic.BaseModel]]:
    """Yield the tables that a field's type allows."""
    annotation = getattr(annotation, "annotation", annotation)
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
