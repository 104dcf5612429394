"""A channel inside one process: suppliers push, filters choose, lanes queue, dispatch delivers.

ledger.py     what became of every match, as frozen counts that balance
lane.py       one consumer's queue and its overflow policy
pipeline.py   one generated function per event type: every filter, in one pass
dispatch.py   the workers that call queued callbacks
supplier.py   the way in: checks, stamps and routes an event
consumer.py   the ways out: subscriptions (called) and consumers (asked)
core.py       the channel itself: opens and closes the others and keeps them in step
"""
