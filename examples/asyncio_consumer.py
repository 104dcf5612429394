"""The same channel in asyncio: `async for`, `await apush`, and an `async def` callback.

It prints:

    awaited 1
    awaited 2
    callback saw 2 events
"""

from __future__ import annotations

import asyncio

import heliograph as hg


class Quote(hg.Event, name="market.quote", key="symbol"):
    symbol: str
    price: float


async def main() -> None:
    async with hg.Station() as station:
        quotes = station.channel("market.quotes", Quote)
        seen: list[Quote] = []

        @quotes.subscribe
        async def on_quote(quote: Quote) -> None:
            await asyncio.sleep(0)
            seen.append(quote)

        async with quotes.consumer() as consumer:
            await quotes.apush(Quote("HG", 1.0))
            await quotes.apush(Quote("HG", 2.0))
            count = 0
            async for quote in consumer:
                count += 1
                print("awaited", round(quote.price))
                if count == 2:
                    break
    print("callback saw", len(seen), "events")  # leaving the station delivered what waited


asyncio.run(main())
