"""Derived channels: a receiver's filter and projection, run where events are pushed or kept.

    fast = tracks.derive("id, speed * 1.852 AS kmh", where="speed > 300")
    fast.subscribe(lambda track: print(track.id, track.kmh))

A derived channel is a channel of its own, as in ECho: its name is made of what it derives, so all who ask
for the same share it, in one process and in all stations of a domain. A station in which events of the
original are pushed or kept opens it as soon as anybody in the domain has asked for it, and then everything
that carries channels carries it: queues, the socket, the ring, histories, groups, statistics.
"""
