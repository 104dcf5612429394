"""Workers share a stream: each event goes to one of them, a failed one comes again and ends as a dead letter.

It prints:

    done, each by one worker: [1, 2, 3, 5, 6, 7]
    job 4 failed 2 times and is a dead letter
"""

from __future__ import annotations

import tempfile

import heliograph as hg


class Job(hg.Event, name="plant.job", key="id"):
    id: int


with tempfile.TemporaryDirectory() as folder, hg.Station(folder, on_error=lambda *_: None) as station:
    kept = hg.QoS(durability="persistent")
    jobs, dead = station.channel("plant.jobs", Job, qos=kept), station.channel("plant.dead", Job, qos=kept)
    finished = station.channel("plant.finished", Job, qos=kept)

    def work(job: Job) -> None:
        if job.id == 4:
            raise ValueError("no worker can do this one")
        finished.push(job)

    for _ in range(2):  # in practice these are in several processes
        jobs.subscribe(work, group="workers", max_deliveries=2, dead_letter="plant.dead")
    jobs.push_many([Job(number) for number in range(1, 8)])

    with finished.consumer() as results:
        print("done, each by one worker:", sorted(results.pull(timeout=30.0).id for _ in range(6)))
    with dead.consumer() as letters:
        letter = next(letters.deliveries(timeout=30.0))
        attempts = letter.header.headers["dead.attempts"]
        print(f"job {letter.event.id} failed {attempts} times and is a dead letter")
