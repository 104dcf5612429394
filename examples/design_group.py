"""A design group: designers, an auditor and a project manager share channels with owners, and crash.

After section 5 of Wang and others, "The Design of Real-time Message Middleware Based on Event Service": every
participant is a process of its own, and a keeper, which none of them is, records who they are.

It prints:

    the project manager creates project.wing and its sub-project
    anna and bert join two-way, the auditor read-only with all that was before
    bert finds: project.wing (owner pm), project.wing.flap (owner pm)
    anna draws 3, bert draws 2
    the auditor pushes: NotPossible
    suspended for review, anna draws: Suspended
    restarted, anna draws 1
    a drawing of the sub-project moves into project.wing, once: True True
    pm leaves: NotPossible
    the channel is transferred to anna, and pm leaves
    bert is killed in the middle of a drawing
    members: anna, auditor
    the keeper is killed, and begins again
    anna draws 2
    the auditor has seen all 7 drawings of anna and pm
    before anna has read hers: EventsUnderWay; then she destroys the channel: done
    whoever looks for it: EventChannelNotFound
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal, cast

import heliograph as hg

if TYPE_CHECKING:
    from collections.abc import Callable

DOMAIN = "design-group"
WING, FLAP = "project.wing", "project.wing.flap"
LIMIT = 60.0


class Drawing(hg.Event, name="project.drawing"):
    author: str
    number: int


def keep(folder: str) -> None:
    """The keeper's process: keeps the channels, and the log of who does what in them."""
    with hg.Station(folder, domain=DOMAIN, name="keeper") as station:
        station.manager.channels()
        for name in {channel.name for channel in station.manager.channels()}:
            station.manager.find(name, Drawing)
        print("ready", flush=True)
        sys.stdin.read()


def take_part(user: str, access: Literal["both", "consume"]) -> None:
    """A participant's process: does what its standard input says, and says how that went."""
    with hg.Station(domain=DOMAIN, name=user) as station:
        manager = station.domain_manager
        seen: list[Drawing] = []
        print("ready", flush=True)
        for line in sys.stdin:
            call, *words = line.split()
            try:
                if call == "join":
                    manager.find(WING, Drawing)
                    manager.join(WING, user, access=access, history=access == "consume", lease=2.0)
                    if access == "consume":
                        subscription = manager.member(WING, user).subscribe(seen.append)
                    answer = "joined"
                elif call == "find":
                    found = manager.search(type="project.drawing")
                    answer = ", ".join(f"{one.name} (owner {one.owner})" for one in found)
                elif call == "draw":
                    with manager.member(WING, user).supplier() as supplier:
                        for number in range(int(words[0])):
                            supplier.push(Drawing(user, supplier.last_sequence + number + 1), timeout=LIMIT)
                    answer = words[0]
                elif call == "seen":
                    wait_for(lambda: len(of_others(seen)) >= 7)
                    answer = str(len(of_others(seen)))
                elif call == "read":
                    with manager.member(WING, user).consumer(until="now") as consumer:
                        answer = str(sum(1 for _ in consumer))
                elif call == "stop":
                    subscription.close()
                    answer = "stopped"
                else:
                    getattr(manager, call)(WING, by=user)
                    answer = "done"
            except hg.HeliographError as error:
                answer = type(error).__name__
            print(answer, flush=True)


class Program:
    """Another process of this example."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, __file__, *arguments]
        self.process = subprocess.Popen(  # noqa: S603 - this very program
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.said, self.heard = self.process.stdin, self.process.stdout
        self.heard.readline()

    def tell(self, words: str) -> str:
        self.begin(words)
        return self.heard.readline().strip()

    def begin(self, words: str) -> None:
        """Tell it something, and do not wait for its answer."""
        self.said.write(f"{words}\n")
        self.said.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.said.close()
        self.heard.close()

    def end(self) -> None:
        if not self.said.closed:
            self.said.close()
            self.process.wait(LIMIT)
            self.heard.close()


def of_others(seen: list[Drawing]) -> set[tuple[str, int]]:
    """The drawings that were not cut off by a crash; what was not acknowledged when one came, came again."""
    return {(drawing.author, drawing.number) for drawing in tuple(seen) if drawing.author != "bert"}


def wait_for(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT
    while not happened():
        if time.monotonic() > deadline:
            raise TimeoutError("the design group does not go on")
        time.sleep(0.01)


def manage(folder: str, stack: ExitStack) -> tuple[Program, Program]:
    """The project manager's process."""

    def started(*arguments: str) -> Program:
        program = Program(*arguments)
        stack.callback(program.end)
        return program

    keeper = started("keep", folder)
    station = stack.enter_context(hg.Station(domain=DOMAIN, name="pm"))
    manager = station.domain_manager
    manager.create(WING, Drawing, owner="pm", access="both", description="The wing")
    manager.create(FLAP, Drawing, owner="pm", description="A part of the wing")
    print("the project manager creates project.wing and its sub-project")

    anna, bert, auditor = (
        started("part", *who) for who in (("anna", "both"), ("bert", "both"), ("auditor", "consume"))
    )
    for one in (anna, bert, auditor):
        one.tell("join")
    print("anna and bert join two-way, the auditor read-only with all that was before")
    print("bert finds:", bert.tell("find"))
    print(f"anna draws {anna.tell('draw 3')}, bert draws {bert.tell('draw 2')}")
    print("the auditor pushes:", auditor.tell("draw 1"))
    manager.suspend(WING, by="pm")
    print("suspended for review, anna draws:", anna.tell("draw 1"))
    manager.restart(WING, by="pm")
    print(f"restarted, anna draws {anna.tell('draw 1')}")

    with manager.member(FLAP, "pm").supplier() as supplier:
        supplier.push(Drawing("pm", 1), timeout=LIMIT)
    moved = [manager.transfer_event(FLAP, WING, 0, by="pm") for _ in range(2)]
    print("a drawing of the sub-project moves into project.wing, once:", *moved)
    try:
        manager.leave(WING, "pm")
    except hg.NotPossible as error:
        print("pm leaves:", type(error).__name__)
    manager.transfer(WING, by="pm", to="anna")
    manager.leave(WING, "pm")
    print("the channel is transferred to anna, and pm leaves")

    bert.begin("draw 1000000")
    bert.kill()
    print("bert is killed in the middle of a drawing")
    wait_for(lambda: set(manager.find_managed(WING).members) == {"anna", "auditor"})
    print("members:", ", ".join(sorted(manager.find_managed(WING).members)))
    keeper.kill()
    started("keep", folder)
    wait_for(manager.channels)
    print("the keeper is killed, and begins again")
    print(f"anna draws {anna.tell('draw 2')}")
    return anna, auditor


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        anna, auditor = manage(folder, stack)
        print(f"the auditor has seen all {auditor.tell('seen')} drawings of anna and pm")
        auditor.tell("stop")
        refused = anna.tell("destroy")
        anna.tell("read")
        print(f"before anna has read hers: {refused}; then she destroys the channel: {anna.tell('destroy')}")
        print(f"whoever looks for it: {anna.tell('suspend')}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["keep"]:
        keep(sys.argv[2])
    elif sys.argv[1:2] == ["part"]:
        take_part(sys.argv[2], cast("Any", sys.argv[3]))
    else:
        main()
