"""Delivery: who has received what, and what is done about those who have not.

Two state machines without clocks, locks or threads say what has to happen; thin shells do it:

    monitor            watches pushed events until every consumer has acknowledged them
    in_flight_window   hands the events of one stream out to consumers that acknowledge them one by one

`coordinator` is the shell of the window: it takes from a queue and redelivers. `records` writes down what
became of events, as events themselves. `trader` and `watchdog` find and restart what supplies them.
"""
