"""From the text of an expression to its tokens, each with its column.

One pass with one regular expression; every alternative is decided by its first characters, so the time is
linear in the text. Numbers are ASCII, names may be any Unicode identifier, and a word is a keyword only when
it is written in ASCII: letters that merely turn into ASCII when their case changes make names.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple, NoReturn, TypeAlias

from heliograph.errors import ExpressionError
from heliograph.filters.tree import MAX_TEXT, Constant

TokenKind: TypeAlias = Literal["value", "param", "name", "keyword", "symbol", "end"]

KEYWORDS: Final = frozenset(
    {"AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE", "AS"}
    | {"CASE", "WHEN", "THEN", "ELSE", "END"}
)
MAX_INTEGER_DIGITS: Final = 20
"""2**64-1 has twenty; longer ones are refused before they are converted."""
MAX_PARAM_DIGITS: Final = 4

_TOKEN: Final = re.compile(
    r"""
      (?P<space>   [ \t\r\n]+ )
    | (?P<float>   [0-9]+ \. [0-9]* (?: [eE] [+-]? [0-9]+ )? | \. [0-9]+ (?: [eE] [+-]? [0-9]+ )?
                 | [0-9]+ [eE] [+-]? [0-9]+ )
    | (?P<int>     [0-9]+ )
    | (?P<bytes>   [xX] ' (?P<hex> [^']* ) ' )
    | (?P<text>    ' (?: [^'] | '' )*+ ' )
    | (?P<quoted>  ` (?: [^`] | `` )*+ ` )
    | (?P<name>    [^\W\d] \w* )
    | (?P<param>   : (?P<pname> [A-Za-z_] [A-Za-z0-9_]* ) )
    | (?P<percent> % (?P<digits> [0-9]* ) )
    | (?P<comment> -- | /\* )
    | (?P<symbol>  <> | != | <= | >= | [-+*/()\[\],.=<>] )
    """,
    re.VERBOSE,
)
_HEX: Final = re.compile(r"[0-9a-fA-F]*")
_HINTS: Final = {
    '"': "text stands in single quotes ('north'), a name with odd characters in backticks (`my field`)",
    "'": "this text has no closing quote; a quote inside text is written twice ('it''s')",
    "`": "this name has no closing backtick",
    ";": "an expression ends where it ends; there are no statements and no semicolon",
    "!": "write NOT for not and <> for not equal",
    "&": "write AND",
    "|": "write OR",
    ":": "a parameter is a colon and a name (:limit)",
    "$": "parameters are written :name or %0",
    "?": "parameters are written :name or %0",
}


class Token(NamedTuple):
    """One token. `text` is the keyword in upper case, the symbol, the name, or what was written."""

    kind: TokenKind
    text: str
    column: int
    value: Constant = None

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else f"{self.text[:40]!r}"


def tokens(text: str) -> list[Token]:
    """The tokens of `text` and an `end`; ExpressionError for what belongs to no token."""
    if len(text) > MAX_TEXT:
        raise ExpressionError(
            f"the expression has {len(text)} characters; at most {MAX_TEXT} are allowed",
            text=text[:100],
            column=1,
        )
    found: list[Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            _refuse(text, position)
        if match["comment"] is not None:
            raise ExpressionError(
                "there are no comments; put a space between two minus signs", text=text, column=position + 1
            )
        position = match.end()
        if match["percent"] is not None:
            found.append(_percent(match, found, text))
            position = match.start() + len(found[-1].text)
        elif match["space"] is None:
            found.append(_token(match, text))
    found.append(Token("end", "", len(text) + 1))
    return found


def _token(match: re.Match[str], text: str) -> Token:
    written, column = match.group(), match.start() + 1
    if match["int"] is not None or match["float"] is not None:
        return _number(match, text)
    if match["bytes"] is not None:
        return Token("value", written, column, _hex(match, text))
    if match["text"] is not None:
        return Token("value", written, column, _text(written[1:-1].replace("''", "'"), text, column))
    if match["quoted"] is not None:
        name = written[1:-1].replace("``", "`")
        if not name:
            raise ExpressionError("a name in backticks must not be empty", text=text, column=column)
        return Token("name", written, column, name)
    if match["name"] is not None:
        word = written.upper() if written.isascii() else ""
        return Token("keyword", word, column) if word in KEYWORDS else Token("name", written, column)
    if match["param"] is not None:
        return Token("param", written, column, match["pname"])
    return Token("symbol", "<>" if written == "!=" else written, column)


def _number(match: re.Match[str], text: str) -> Token:
    written, column = match.group(), match.start() + 1
    following = text[match.end() : match.end() + 1]
    if following.isalnum() or following == "_":
        raise ExpressionError(
            f"a number and a name run together after {written[:40]!r}", text=text, column=match.end() + 1
        )
    if match["float"] is not None:
        number = float(written)
        if number == float("inf"):
            raise ExpressionError("this number is too large for a 64-bit float", text=text, column=column)
        return Token("value", written, column, number)
    digits = written.lstrip("0") or "0"
    if len(digits) > MAX_INTEGER_DIGITS or int(digits) >= 1 << 64:
        raise ExpressionError(
            "this integer is out of range; integers go from -2**63 to 2**64-1, larger numbers need a point",
            text=text,
            column=column,
        )
    return Token("value", written, column, int(digits))


def _hex(match: re.Match[str], text: str) -> bytes:
    digits = match["hex"]
    if len(digits) % 2 or not _HEX.fullmatch(digits):
        raise ExpressionError(
            "bytes are written as pairs of hexadecimal digits: X'00ff'", text=text, column=match.start() + 1
        )
    return bytes.fromhex(digits)


def _text(value: str, text: str, column: int) -> str:
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ExpressionError(
            "the text holds half a surrogate pair, which no encoding can carry", text=text, column=column
        )
    return value


def _percent(match: re.Match[str], before: list[Token], text: str) -> Token:
    # After an operand `%` is the remainder, elsewhere it begins a parameter: `a %0` against `a = %0`.
    column = match.start() + 1
    if before and _ends_operand(before[-1]):
        return Token("symbol", "%", column)
    digits = match["digits"]
    if not 1 <= len(digits) <= MAX_PARAM_DIGITS:
        raise ExpressionError(
            "a numbered parameter is % and its number (%0 to %9999)", text=text, column=column
        )
    return Token("param", match.group(), column, int(digits))


def _ends_operand(token: Token) -> bool:
    if token.kind == "keyword":
        return token.text in ("NULL", "TRUE", "FALSE", "END")
    return token.kind in ("value", "param", "name") or token.text in (")", "]")


def _refuse(text: str, position: int) -> NoReturn:
    character = text[position]
    hint = _HINTS.get(character)
    shown = repr(character) if character.isprintable() else f"the character U+{ord(character):04X}"
    reason = f"{shown} cannot stand here" + (f": {hint}" if hint else "")
    raise ExpressionError(reason, text=text, column=position + 1)
