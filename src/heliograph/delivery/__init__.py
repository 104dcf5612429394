"""Delivery: who has received what, and what is done about those who have not.

Two state machines without clocks, locks or threads say what has to happen; thin shells do it:

    monitor   watches pushed events until every consumer has acknowledged them
    window    hands the events of one stream out to consumers that acknowledge them one by one

`records` writes down what became of events, as events themselves.
"""
