"""Filters and projections over decimals and maps: in channels, in the index, across links, over history."""

from __future__ import annotations

import decimal
import enum
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

import heliograph as hg
from heliograph.codec import decoder, encoder
from heliograph.filters.build import map_contains, tree_of
from heliograph.filters.check import check
from heliograph.filters.parser import parse
from heliograph.filters.typed import conjuncts
from heliograph.links.interest.filter_wire import from_data, to_data
from heliograph.spark.source.pruning import Skipping, Statistics

if TYPE_CHECKING:
    from pathlib import Path


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Quote(hg.Event, name="shop.quote", key="price"):
    price: Annotated[Decimal, hg.Digits(18, 4)]
    tags: dict[str, str]
    stock: dict[Colour, int]
    low: Annotated[Decimal, hg.Digits(6, 2)] | None = None


QUOTES = [
    Quote(Decimal("10.25"), {"size": "L"}, {Colour.RED: 1}),
    Quote(Decimal("10.2501"), {"size": "M"}, {Colour.BLUE: 2}, Decimal("1.5")),
    Quote(Decimal("0.1"), {}, {}),
]


def test_many_subscriptions_get_what_their_filters_say() -> None:
    texts = [f"price > {n}.25 AND price <= {n + 1}.25" for n in range(-50, 50)]
    texts += [f"tags['size'] = '{size}'" for size in "SML"]
    texts += ["price = 0.1", "price = 10.25", "stock['red'] >= 1", "map_contains(stock, 'blue')"]
    found: dict[str, list[Decimal]] = {text: [] for text in texts}
    with hg.Station() as station:
        quotes = station.channel("quotes", Quote)
        for text in texts:
            quotes.subscribe(
                lambda quote, text=text: found[text].append(quote.price), where=text, inline=True
            )
        with decimal.localcontext(decimal.Context(prec=2)):
            for quote in QUOTES:
                quotes.push(quote)
    got = {text: prices for text, prices in found.items() if prices}
    assert got == {
        "price > 9.25 AND price <= 10.25": [Decimal("10.25")],
        "price > 10.25 AND price <= 11.25": [Decimal("10.2501")],
        "price > -1.25 AND price <= 0.25": [Decimal("0.1")],
        "tags['size'] = 'L'": [Decimal("10.25")],
        "tags['size'] = 'M'": [Decimal("10.2501")],
        "price = 0.1": [Decimal("0.1")],
        "price = 10.25": [Decimal("10.25")],
        "stock['red'] >= 1": [Decimal("10.25")],
        "map_contains(stock, 'blue')": [Decimal("10.2501")],
    }


def test_text_and_builder_make_equal_trees() -> None:
    assert parse("map_contains(tags, 'size')") == tree_of(map_contains(hg.col("tags"), "size"))
    assert parse("price > DECIMAL '10.250'") == tree_of(hg.col("price") > Decimal("10.25"))
    assert parse("price > -DECIMAL '1.5'") == tree_of(hg.col("price") > Decimal("-1.50"))
    assert parse("price > :p", {"p": Decimal("10.25")}) == parse("price > DECIMAL '10.25'")


def test_a_condition_travels_to_another_station_with_its_decimals() -> None:
    for text in ("price > DECIMAL '10.25'", "tags['size'] IN ('L', 'M')", "map_contains(stock, 'red')"):
        expr = parse(text)
        data = msgspec.msgpack.decode(msgspec.msgpack.encode(to_data(expr.tree)))
        assert from_data(data, "peer") == expr


def test_derived_channels_have_decimals_with_the_digits_of_their_columns() -> None:
    with hg.Station() as station:
        quotes = station.channel("quotes", Quote)
        select = "price, price * 2 AS double, coalesce(low, price) AS low, tags, tags['size'] AS size"
        derived = quotes.derive(where="price > 1", select=select)
        got: list[hg.Event] = []
        derived.subscribe(got.append, inline=True)
        for quote in QUOTES:
            quotes.push(quote)
    assert [event.to_dict()["double"] for event in got] == [Decimal("20.5"), Decimal("20.5002")]
    for event in got:
        cls = type(event)
        assert decoder(hg.format_of(cls), cls)(encoder(cls).encode(event)) == event


def test_history_is_filtered_and_projected_alike_before_and_after_it_is_sealed(tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        quotes = station.channel("quotes", Quote, qos=hg.QoS(durability="persistent"))
        for quote in QUOTES:
            quotes.push(quote)
    table = hg.history(tmp_path, "quotes", where="price > 10.25 OR tags['size'] = 'L'").arrow()
    assert table.column("price").to_pylist() == [Decimal("10.25"), Decimal("10.2501")]
    assert table.column("tags").to_pylist() == [[("size", "L")], [("size", "M")]]
    assert table.column("stock").to_pylist() == [[("red", 1)], [("blue", 2)]]


def test_row_groups_are_left_out_by_the_statistics_of_decimals(tmp_path: Path) -> None:
    file = tmp_path / "prices.parquet"
    prices = pa.array([Decimal("1.25"), Decimal("3.5")], pa.decimal128(18, 4))
    pq.write_table(pa.table({"price": prices}), file)
    statistics = Statistics(pq.ParquetFile(file))
    expected = {
        "price > 3.5": True,
        "price >= 3.5": False,
        "price < 1.25": True,
        "price <= 1.25": False,
        "price = 1.2499": True,
        "price IN (0, 9.5)": True,
        "price IN (0, 2)": False,
        "tags['size'] = 'L'": False,
    }
    for text, skipped in expected.items():
        predicates, _ = conjuncts(check(parse(text), hg.format_of(Quote)).node)
        assert Skipping(statistics, [predicates]).skips(0) is skipped, text
