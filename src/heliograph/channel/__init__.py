"""A channel inside one process: suppliers push, routes filter, queues hold, dispatch threads deliver.

publish     the way in: suppliers, options of a push, batches, delayed and periodic events
routing     which receivers get an event: conditions, the compiled route, the index of many filters, groups
queueing    what waits for one receiver, and what happens when its queue is full
dispatch    the threads that call queued callbacks
receive     the way out: subscriptions, consumers, acknowledgements, dead letters
history     what a channel asks of whatever keeps its history
"""
