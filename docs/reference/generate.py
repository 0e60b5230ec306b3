"""Writes configuration.md, the reference of every key, from the settings themselves: `make reference`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from endive.config import json_schema

TARGET: Final = Path(__file__).with_name("configuration.md")

_HEADER: Final = """\
# Configuration

Written by `make reference` from the settings' definitions. Keys not listed here are refused. Durations are
milliseconds, sizes bytes. Editors that know TOML schemas complete keys with `endive check --schema`.
"""


def reference() -> str:
    """Return the reference as Markdown: a section for each table, then one for each distribution."""
    schema = json_schema()
    sections = [_HEADER, *_table_sections(schema, schema, "")]
    sections.append(
        "## Distributions\n\nA duration that can vary is a table with `distribution` and that distribution's keys. "
        "Left out, `distribution` is `exponential` for arrivals and `lognormal` for everything else.\n"
    )
    for name in ("Exponential", "Lognormal", "Normal", "Uniform", "Fixed", "Empirical"):
        definition = schema["$defs"][f"{name}Settings"]
        sections.append(f"### `{name.lower()}`\n\n{definition['description']}\n\n{_rows(schema, definition)}")
    return "\n".join(sections)


def _table_sections(schema: dict[str, Any], table: dict[str, Any], path: str) -> list[str]:
    sections = []
    for name, entry in table["properties"].items():
        inner, suffix = _inner_table(schema, entry)
        if inner is None:
            continue
        key = f"{path}{name}{suffix}"
        title = f"[[{key}]]" if entry.get("type") == "array" else f"[{key}]"
        sections.append(f"## `{title}`\n\n{entry['description']}\n\n{_rows(schema, inner)}")
        sections.extend(_table_sections(schema, inner, f"{key}."))
    return sections


def _inner_table(schema: dict[str, Any], entry: dict[str, Any]) -> tuple[dict[str, Any] | None, str]:
    """Return the table that a key holds, if it holds one kind of table, and what follows the key in its path."""
    if "items" in entry and "$ref" in entry["items"]:
        return _resolve(schema, entry["items"]), ""
    if "$ref" in _named_values(entry):
        return _resolve(schema, _named_values(entry)), ".NAME"
    options = [option for option in entry.get("anyOf", [entry]) if "$ref" in option]
    return (_resolve(schema, options[0]), "") if options else (None, "")


def _named_values(entry: dict[str, Any]) -> dict[str, Any]:
    """Return what the values of a table with free names are."""
    return next(iter(entry.get("patternProperties", {}).values()), {})


def _resolve(schema: dict[str, Any], reference: dict[str, Any]) -> dict[str, Any]:
    definition: dict[str, Any] = schema["$defs"][reference["$ref"].rsplit("/", 1)[-1]]
    return definition


def _rows(schema: dict[str, Any], table: dict[str, Any]) -> str:
    lines = []
    for name, entry in table["properties"].items():
        if name == "distribution" and "const" in entry:
            continue
        if _inner_table(schema, entry)[0] is None:
            default = _default(entry, required=name in table.get("required", ()))
            lines.append(f"| `{name}` | {_type(entry)} | {default} | {entry['description']} |")
    if not lines:
        return ""
    return "\n".join(["| key | value | default | meaning |", "|---|---|---|---|", *lines, ""])


def _type(entry: dict[str, Any]) -> str:
    options = [option for option in entry.get("anyOf", [entry]) if option.get("type") != "null"]
    return " or ".join(dict.fromkeys(_one_type(option) for option in options))


def _one_type(entry: dict[str, Any]) -> str:
    if "oneOf" in entry or "$ref" in entry:
        return "[distribution](#distributions)"
    if "enum" in entry:
        return ", ".join(f'`"{value}"`' for value in entry["enum"])
    if entry.get("type") == "array":
        return f"array of {_one_type(entry['items'])}"
    if entry.get("type") == "object":
        return f"table of {_one_type(_named_values(entry))}"
    names = {"integer": "whole number", "number": "number", "boolean": "true or false", "string": "string"}
    return names[entry["type"]] + _range(entry)


def _range(entry: dict[str, Any]) -> str:
    bounds = []
    if "exclusiveMinimum" in entry:
        bounds.append(f"> {entry['exclusiveMinimum']:g}")
    if "minimum" in entry:
        bounds.append(f"≥ {entry['minimum']:g}")
    if "maximum" in entry and entry["maximum"] < 1e18:
        bounds.append(f"≤ {entry['maximum']:g}")
    return f" {', '.join(bounds)}" if bounds else ""


def _default(entry: dict[str, Any], *, required: bool) -> str:
    if required:
        return "required"
    value = entry.get("default")
    if value is None:
        return "–"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, dict):
        inner = ", ".join(f"{key} = {entry}" for key, entry in value.items() if key != "distribution")
        return f"`{value.get('distribution', '')}` ({inner})" if value else "–"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value:,}`".replace(",", "_")


if __name__ == "__main__":
    TARGET.write_text(reference(), encoding="utf-8")
