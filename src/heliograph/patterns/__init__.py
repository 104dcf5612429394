"""Several events that mean something together: patterns over channels, and what finds their matches.

    pattern     all_of, any_of, none_of, every, after: what to look for, checked when it is written
    machine     the pure state machine: events and instants in, matches out

`station.subscribe(pattern, callback)` joins the two to channels and clocks.
"""
