"""The tables of docs/reference/qos.md: the policies of DDS as they are declared.

python -m tests.docs.test_qos      # makes the first table anew
"""

from __future__ import annotations

import re
from typing import Final

from heliograph.qos.dds_policies import CONSISTENCY, DDS_POLICIES
from heliograph.qos.request_offered import MATCHED, SENTENCES
from heliograph.runtime.declared_options import rows_of
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "reference" / "qos.md"
BEGIN: Final = "<!-- policies: made by python -m tests.docs.test_qos -->\n"
CELLS: Final = re.compile(r"^\| `\w+` \| `(?:unit|e2e)/.*\|$", re.MULTILINE)
END: Final = "<!-- end of policies -->\n"


def tables() -> str:
    lines = [
        "| policy | section | of | changeable | field | allowed | default | what it is for |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, (kind, row) in DDS_POLICIES.items():
        changeable = "yes" if row.changeable else "no"
        head = f"| `{name}` | {row.section} | {', '.join(row.applies)} | {changeable} |"
        for field, option in rows_of(kind).items():
            lines.append(f"{head} `{field}` | {option.text} | `{option.default!r}` | {option.doc} |")
            head = "| | | | |"
    lines += ["", "Request and offer:", "", "| policy | field | rule |", "|---|---|---|"]
    lines += [
        f"| `{policy}` | `{field}` | {SENTENCES[rule]} |"
        for policy, rules in MATCHED.items()
        for field, rule in rules.items()
    ]
    lines += ["", "Policies of one entity that have to go together:", ""]
    lines += ["| policy | section | allowed |", "|---|---|---|"]
    lines += [f"| `{rule.policy}` | {rule.section} | {rule.allowed} |" for rule in CONSISTENCY]
    return "\n".join(lines) + "\n"


def test_the_page_says_of_each_policy_what_the_rows_say() -> None:
    text = PAGE.read_text()
    assert text[text.index(BEGIN) + len(BEGIN) : text.index(END)] == tables()


def test_every_policy_names_a_test_for_each_carrier_or_says_that_it_is_refused() -> None:
    rows = [line.strip("| ").split(" | ") for line in CELLS.findall(PAGE.read_text())]
    assert [row[0].strip("`") for row in rows] == list(DDS_POLICIES)
    for _, *cells in rows:
        assert len(cells) == 4
        for cell in cells:
            assert cell in ("refused", "does not apply") or is_test(cell.strip("`")), cell
        assert cells[3].endswith("[network]`") or cells[3] == "does not apply"


def is_test(name: str) -> bool:
    file, _, test = name.partition("::")
    test, _, parameter = test.partition("[")
    text = (ROOT / "tests" / file).read_text()
    return f"def {test}(" in text and (not parameter or f'"{parameter[:-1]}"' in text)


if __name__ == "__main__":
    text = PAGE.read_text()
    head, tail = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
    PAGE.write_text(head + tables() + tail)
