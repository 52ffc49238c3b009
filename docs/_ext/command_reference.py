"""The directive `{command-reference}`: every command of `scorefold`, from the program itself."""

from typing import Any, ClassVar

import typer.main
from docutils import nodes
from docutils.parsers.rst import Directive

from scorefold.app.cli import app as commands


class CommandReference(Directive):
    """A section for each command, with its usage, its help and a table of its options."""

    has_content = False
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        """The sections."""
        return [
            section
            for name, command in _leaves(typer.main.get_command(commands), "scorefold")
            for section in _shown(name, command)
        ]


def _leaves(command: Any, name: str) -> list[tuple[str, Any]]:
    """All commands below one, with their full names."""
    below = getattr(command, "commands", {})
    found = [(name, command)] if not below or getattr(command, "invoke_without_command", False) else []
    return found + [pair for word, one in below.items() for pair in _leaves(one, f"{name} {word}")]


def _shown(name: str, command: Any) -> list[nodes.Node]:
    section = nodes.section(ids=[nodes.make_id(name)], names=[nodes.fully_normalize_name(name)])
    section += nodes.title("", "", nodes.literal("", name))
    arguments = [_argument(one) for one in command.params if one.param_type_name == "argument"]
    usage = " ".join([name, "[OPTIONS]", *arguments])
    section += nodes.literal_block(usage, usage, language="none")
    for paragraph in (command.help or "").split("\n\n"):
        section += nodes.paragraph("", "", *_words(" ".join(paragraph.split())))
    rows = [(_names(one), getattr(one, "help", "") or "", _default(one)) for one in command.params]
    if rows:
        section += _table(("argument", "meaning", "default"), rows)
    return [section]


def _argument(one: Any) -> str:
    word = (one.metavar or one.name or "").upper()
    return word if one.required else f"[{word}]"


def _names(one: Any) -> str:
    if one.param_type_name == "argument":
        return (one.metavar or one.name or "").upper()
    return ", ".join([*one.opts, *one.secondary_opts])


def _default(one: Any) -> str:
    if one.required:
        return "required"
    default = one.default
    if callable(default) or default is None or default == () or repr(default).endswith("UNSET"):
        return ""
    return str(getattr(default, "value", default))


def _words(text: str) -> list[nodes.Node]:
    """Text in which `this` is code."""
    return [nodes.literal("", part) if i % 2 else nodes.Text(part) for i, part in enumerate(text.split("`"))]


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> nodes.Node:
    table = nodes.table(classes=["commands"])
    group = nodes.tgroup(cols=len(heads))
    table += group
    for width in (25, 60, 15):
        group += nodes.colspec(colwidth=width)
    head, body = nodes.thead(), nodes.tbody()
    group += [head, body]
    head += _row([[nodes.Text(word)] for word in heads])
    for first, words, last in rows:
        body += _row([[nodes.literal("", first)], _words(words), [nodes.literal("", last)] if last else []])
    return table


def _row(cells: list[list[nodes.Node]]) -> nodes.row:
    row = nodes.row()
    for cell in cells:
        row += nodes.entry("", nodes.paragraph("", "", *cell))
    return row


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("command-reference", CommandReference)
    return {"parallel_read_safe": True}
