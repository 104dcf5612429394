"""The rules of the filter language as a table: an expression, and its value for one fixed event."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np

from heliograph.filters.check import check_value
from heliograph.filters.parser import parse
from heliograph.model.event import Header
from tests.property.expr_cases import FORMAT, as_batch, as_event, needed

if TYPE_CHECKING:
    from heliograph.filters import typed

MAX = (1 << 63) - 1
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
REFERENCE = UUID("12345678-90ab-cdef-1234-567890abcdef")
PARAMS = {
    "nan": math.nan,
    "inf": math.inf,
    "null": None,
    "max": MAX,
    "ref": REFERENCE,
    "day": date(2026, 11, 18),
}

_VALUES: dict[str, Any] = {
    "i": 7,
    "i_n": None,
    "tiny": -128,
    "u": (1 << 64) - 1,
    "u_n": 5,
    "f": 2.5,
    "f_n": None,
    "g": 0.1,
    "b": True,
    "b_n": None,
    "s": "Grüße",
    "s_n": None,
    "raw": b"\x00\xff",
    "raw_n": None,
    "t": NOON,
    "t_n": None,
    "day": date(2026, 11, 18),
    "day_n": None,
    "ref": REFERENCE,
    "ref_n": None,
    "days": [date(1, 1, 1), date(9999, 12, 31)],
    "mode": 1,
    "band": "low",
    "pos": {"lat": 48.1, "lon": None, "tag": "a\nb"},
    "samples": [1.5, math.nan],
    "names": ["x", None],
    "rgb": [1, 2, 255],
    "track": [],
    "grid": np.array([[1.0, 2.0], [3.0, 4.0]]),
    "cloud": None,
    "free": np.array([[10, 20, 30]], np.int32),
}
_HEADER = Header(
    channel="air",
    type="everything",
    supplier="radar",
    epoch=1,
    sequence=9,
    source_ts=1_769_860_800_000_001_999,
    format_id=FORMAT.id,
    headers={"trace": "abc"},
)


class _Row:
    """The event of the table in the forms that the engines take."""

    event: Any = as_event(_VALUES)
    mapping: Any = _VALUES
    header = _HEADER

    @staticmethod
    @lru_cache
    def batch(*, spark_safe: bool) -> Any:
        return as_batch([{**_VALUES, "header": _HEADER}], spark_safe=spark_safe)


ROW = _Row()
assert isinstance(ROW.event, SimpleNamespace)


@lru_cache(maxsize=1024)
def rule_value(text: str) -> typed.Checked:
    return check_value(parse(text, needed(text, PARAMS)), FORMAT)


RULES: list[tuple[str, Any]] = [
    # Three-valued logic
    ("NULL AND FALSE", False),
    ("NULL AND TRUE", None),
    ("NULL OR TRUE", True),
    ("NULL OR FALSE", None),
    ("NOT NULL", None),
    ("i_n = 1", None),
    ("i_n = NULL", None),
    ("i = :null", None),
    ("i_n <> i_n", None),
    ("i_n IS NULL", True),
    ("i_n IS NOT NULL", False),
    ("b_n IS NULL", True),
    ("(i_n > 1) IS NULL", True),
    ("(i_n > 1 AND FALSE) IS NULL", False),
    ("i IN (1, NULL)", None),
    ("i IN (7, NULL)", True),
    ("i NOT IN (1, NULL)", None),
    ("i_n IN (1)", None),
    ("i_n BETWEEN 1 AND 2", None),
    ("i BETWEEN NULL AND 3", False),
    ("i BETWEEN NULL AND 9", None),
    ("i NOT BETWEEN NULL AND 3", True),
    ("s_n LIKE '%'", None),
    ("s LIKE :null", None),
    ("CASE WHEN NULL THEN 1 ELSE 2 END", 2),
    ("CASE i_n WHEN NULL THEN 1 ELSE 2 END", 2),
    ("CASE WHEN FALSE THEN 1 END", None),
    ("coalesce(i_n, NULL, 3)", 3),
    ("coalesce(i_n, :null)", None),
    ("b OR CASE WHEN b THEN NULL END", True),
    ("s = CASE WHEN b THEN NULL END", None),
    ("coalesce(NULL, NULL) AND b", None),
    ("coalesce(coalesce(NULL, NULL), s)", "Grüße"),
    # NaN, infinities and zeros
    ("samples[1] = samples[1]", True),
    ("samples[1] = :nan", True),
    ("samples[1] <> :nan", False),
    ("samples[1] > :inf", True),
    ("samples[1] >= 5", True),
    ("samples[1] < 5", False),
    ("5 < samples[1]", True),
    ("samples[1] BETWEEN 0 AND :inf", False),
    ("samples[1] BETWEEN 0 AND :nan", True),
    ("samples[1] NOT BETWEEN 0 AND 5", True),
    ("samples[1] IN (1.0, :nan)", True),
    ("samples[1] NOT IN (1.0)", True),
    ("samples[1] NOT IN (:nan)", False),
    ("NOT (samples[1] > 5)", False),
    ("0.0 = -0.0", True),
    ("-0.0 IN (0.0)", True),
    ("-0.0 < 0.0", False),
    ("samples[1] + 1", math.nan),
    ("1e308 * 10", math.inf),
    ("CASE samples[1] WHEN :nan THEN 1 END", 1),
    # Integers do not wrap
    ("9223372036854775807 + 1", None),
    (":max + i", None),
    ("-9223372036854775808 - 1", None),
    (":max * 2", None),
    ("-(-9223372036854775808)", 9223372036854775808),
    ("-(tiny)", 128),
    ("abs(-9223372036854775808)", None),
    ("bitand(12, 10)", 8),
    ("bitand(-1, tiny)", -128),
    ("bitand(-9223372036854775808, -1)", -9223372036854775808),
    ("bitand(NULL, 3)", None),
    ("-(0 - 9223372036854775807 - 1)", None),
    ("tiny * 2", -256),
    ("i % 3", 1),
    ("-7 % 3", -1),
    ("7 % -3", 1),
    ("(0 - 9223372036854775807 - 1) % -1", 0),
    ("i % 0", None),
    # Division is of floats, by zero NULL
    ("7 / 2", 3.5),
    ("1 / 0", None),
    ("1.0 / 0.0", None),
    ("1.0 / -0.0", None),
    ("samples[1] / 0", None),
    ("9007199254740993 / 1", 9007199254740992.0),
    # u64
    ("u = 18446744073709551615", True),
    ("u > 9223372036854775807", True),
    ("u > i", True),
    ("u_n = 5", True),
    ("u + 1", None),
    ("u_n + 1", 6),
    ("u / 2", None),
    ("u_n / 2", 2.5),
    ("u = 18446744073709551615.0", True),
    ("coalesce(u, 1)", 18446744073709551615),
    ("abs(u)", None),
    # Int beside float: both as floats
    ("9007199254740993 = 9007199254740992.0", True),
    ("i > 6.5", True),
    ("i + 0.5", 7.5),
    ("i IN (7.0)", True),
    # f32 is rounded to 32 bits, then widened
    ("g = 0.1", False),
    ("g", 0.10000000149011612),
    # Text
    ("'a' < 'b'", True),
    ("'Z' < 'a'", True),
    ("'\U0001f600' > '\uffff'", True),
    ("s = 'grüße'", False),
    ("upper(s)", "GRüßE"),
    ("lower('ÄB')", "Äb"),
    ("length(s)", 5),
    ("length('\U0001f600')", 1),
    ("length('')", 0),
    ("s LIKE 'Gr%'", True),
    ("s LIKE 'gr%'", False),
    ("s LIKE '__ü__'", True),
    ("s LIKE '%ü%e'", True),
    ("'\U0001f600' LIKE '_'", True),
    ("pos.tag LIKE 'a_b'", True),
    ("pos.tag LIKE 'a%'", True),
    ("pos.tag LIKE 'a'", False),
    ("'a\n' LIKE 'a'", False),
    ("'' LIKE ''", True),
    ("'' LIKE '%'", True),
    ("'' LIKE '_'", False),
    ("'50%' LIKE '50!%' ESCAPE '!'", True),
    ("'50x' LIKE '50!%' ESCAPE '!'", False),
    ("'a\\b' LIKE 'a\\b'", True),
    ("'aXbXc' LIKE 'a%b%c'", True),
    ("'ab' LIKE 'ab%ab'", False),
    ("'abab' LIKE 'ab%ab'", True),
    ("'abcab' LIKE '%b_a%'", True),
    ("'a.c' LIKE 'a.c'", True),
    ("'abc' LIKE 'a.c'", False),
    ("'abc' LIKE 'a_%_c'", False),
    # Bytes
    ("raw = X'00ff'", True),
    ("raw < X'01'", True),
    ("X'80' > X'7f'", True),
    ("X'' < X'00'", True),
    ("length(raw)", 2),
    # Times
    ("t = TIMESTAMP '2026-01-31T13:00:00+01:00'", True),
    ("t < TIMESTAMP '2026-01-31T12:00:00.000001Z'", True),
    ("header.source_ts = TIMESTAMP '2026-01-31T12:00:00.000001Z'", True),
    ("day = DATE '2026-11-18'", True),
    ("day = :day", True),
    ("day <> date '2026-11-18'", False),
    ("day < DATE '2026-11-19' AND day >= DATE '0001-01-01'", True),
    ("day BETWEEN DATE '2026-11-01' AND DATE '2026-11-17'", False),
    ("day IN (DATE '2026-01-01', DATE '2026-11-18')", True),
    ("day_n < DATE '2026-11-19'", None),
    ("coalesce(day_n, DATE '1970-01-01')", date(1970, 1, 1)),
    ("days[0] < days[1]", True),
    ("days[2] IS NULL", True),
    ("ref = '12345678-90ab-cdef-1234-567890abcdef'", True),
    ("ref = '12345678-90AB-CDEF-1234-567890ABCDEF'", True),
    ("ref = :ref", True),
    ("ref > '12345678-90ab-cdef-1234-567890abcdee'", True),
    ("ref IN ('00000000-0000-0000-0000-000000000000', NULL)", None),
    ("ref NOT IN ('00000000-0000-0000-0000-000000000000')", True),
    ("ref_n = '00000000-0000-0000-0000-000000000000'", None),
    ("CASE ref WHEN '12345678-90ab-cdef-1234-567890abcdef' THEN 1 ELSE 2 END", 1),
    ("header.append_ts IS NULL", True),
    ("t_n > t", None),
    # Rounding
    ("round(2.5)", 3.0),
    ("round(-2.5)", -3.0),
    ("round(0.49999999999999994)", 0.0),
    ("round(2.675, 2)", 2.68),
    ("round(1.005, 2)", 1.01),
    ("round(-1.005, 2)", -1.01),
    ("round(123456.789, 1)", 123456.8),
    ("round(:nan, 2)", math.nan),
    ("round(:inf)", math.inf),
    ("round(9007199254740993.0, 3)", 9007199254740992.0),
    ("round(i)", 7),
    ("floor(-2.5)", -3),
    ("ceil(-2.5)", -2),
    ("floor(1e300)", None),
    ("floor(9223372036854775807.0)", None),
    ("floor(-9223372036854775808.0)", -(1 << 63)),
    ("ceil(:nan)", None),
    ("floor(i)", 7),
    ("sqrt(2.25)", 1.5),
    ("sqrt(-1)", None),
    ("sqrt(:nan)", math.nan),
    ("abs(-2.5)", 2.5),
    # Parts
    ("pos.lat", 48.1),
    ("pos.lon", None),
    ("pos IS NULL", False),
    ("samples[0]", 1.5),
    ("samples[2]", None),
    ("length(samples)", 2),
    ("names[1]", None),
    ("names[5]", None),
    ("rgb[2]", 255),
    ("track[0].lat", None),
    ("length(track)", 0),
    ("grid[1, 0]", 3.0),
    ("grid[1][0]", 3.0),
    ("grid[0, 2]", None),
    ("length(grid)", 2),
    ("cloud[0]", None),
    ("length(cloud)", None),
    ("cloud IS NULL", True),
    ("free[0, 2]", 30),
    ("free[0]", None),
    ("free[1, 0]", None),
    ("free[0, 3]", None),
    ("length(free)", 1),
    # Enums
    ("mode = 'ON'", True),
    ("mode IN ('OFF', 'AUTO')", False),
    ("mode = 1", True),
    ("band = 'low'", True),
    # Header
    ("header.supplier = 'radar' AND header.sequence = 9", True),
    ("header.partition IS NULL", True),
    ("header.user['trace']", "abc"),
    ("header.user['other']", None),
]
