"""The tables of docs/reference/options.md are made of the declared options.

python -m tests.docs.test_options      # makes them anew
"""

from __future__ import annotations

import inspect
from dataclasses import MISSING
from typing import TYPE_CHECKING, Any

import msgspec

import heliograph as hg
from heliograph.channel.ack_protocol import AckOptions
from heliograph.configuration import StationOptions
from heliograph.qos.endpoint import Acking, PushOptions, ReceiverOptions
from heliograph.qos.policies import RULES, policies
from heliograph.qos.threads import THREAD_RULES
from heliograph.runtime.declared_options import Option, rows_of
from tests.docs.pages import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from heliograph.runtime.declared_options import Rule

PAGE = ROOT / "docs" / "reference" / "options.md"

HEAD = """\
# Options

Every option of stations, channels, receivers and pushes: what is allowed, the default, and what it is for.
Policies of a channel are fields of `hg.QoS`. A receiver may ask for something of its own where its table has
an option of the same name. A value that is not allowed is refused by the call that says it, with the words of
the second column.

The tables are made of declarations in the code (`python -m tests.docs.test_options`); a test compares them.

"""
OFFERS = """\
An offer is what the channel of the supplying station has, a request what the channel of the receiving station
has. The words of a policy are in order above, weakest first.
"""


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def shown(value: Any) -> str:
    if value is MISSING:
        return "none: it has to be said"
    return "`hg.Threads()`" if isinstance(value, hg.Threads) else f"`{value!r}`"


def table(rows: Mapping[str, Option], defaults: Mapping[str, Any] | None = None) -> str:
    lines = ["| option | allowed | default | what it is for |", "|---|---|---|---|"]
    for name, row in rows.items():
        default = row.default if defaults is None else defaults.get(name)
        lines.append(f"| `{name}` | {cell(row.text)} | {shown(default)} | {cell(row.doc)} |")
    return "\n".join(lines) + "\n"


def policy_table() -> str:
    lines = [
        "| policy | changed by `reconfigure` | request and offer | where it holds |",
        "|---|---|---|---|",
    ]
    for name, policy in policies().items():
        where = "of one process" if policy.local else "kept with a persistent history"
        where = "the same wherever the channel is open with a history" if policy.shared else where
        lines.append(
            f"| `{name}` | {'yes' if policy.changeable else 'no'} | {policy.rule or '-'} | {where} |"
        )
    return "\n".join(lines) + "\n"


def rule_table(rules: Iterable[Rule]) -> str:
    lines = ["| option | value | allowed |", "|---|---|---|"]
    lines += [f"| `{rule.option}` | {rule.value} | {cell(rule.allowed)} |" for rule in rules]
    return "\n".join(lines) + "\n"


def parameters(call: Callable[..., Any]) -> dict[str, Any]:
    found = inspect.signature(call).parameters.values()
    return {one.name: one.default for one in found if one.name not in ("self", "options")}


def page() -> str:
    return "\n".join(
        [
            HEAD + "## A station: `hg.Station(...)`\n",
            table(rows_of(StationOptions), parameters(hg.Station.__init__)),
            "## The history on disk: `hg.Station(journal=hg.Limits(...))`\n",
            table(rows_of(hg.Limits)),
            "## Where sealed history is published: `hg.Station(store=hg.Store(...))`\n",
            table(rows_of(hg.Store)),
            "## A channel: `station.channel(..., qos=hg.QoS(...))`\n",
            table(rows_of(hg.QoS)),
            "### Policies that have to go together\n",
            rule_table(RULES),
            "### Policies between stations, and while events flow\n",
            OFFERS,
            policy_table(),
            "## The threads of a channel: `hg.QoS(threads=hg.Threads(...))`\n",
            table(rows_of(hg.Threads)),
            rule_table(THREAD_RULES),
            "## A receiver: `channel.subscribe(...)`, `channel.consumer(...)`\n",
            table(rows_of(ReceiverOptions)),
            "## Acknowledging: `channel.consumer(...)`, and `channel.subscribe(...)` in groups or by name\n",
            table(rows_of(Acking), msgspec.structs.asdict(AckOptions())),
            "## A push: `channel.push(...)`\n",
            table(rows_of(PushOptions)),
        ]
    )


def test_the_page_of_options_says_what_the_rows_say() -> None:
    assert PAGE.read_text() == page()


def test_a_station_has_the_options_that_are_declared() -> None:
    assert list(parameters(hg.Station.__init__)) == list(rows_of(StationOptions))


if __name__ == "__main__":
    PAGE.write_text(page())
