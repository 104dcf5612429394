"""A workaround for Spark Connect's client, which takes a note of a Python data source for an error.

Spark 4.3 sends what Python workers counted (`__python_accumulator__`) to the client among the answers to a
command. `SparkConnectClient.execute_command_as_iterator`, which only `spark-pipelines` calls, raises
UNKNOWN_RESPONSE for it: the first flow that reads through any Python source or function ends the run,
although its table is complete. The other calls of that client pass such notes over. Here this one does so,
too, for one session and not for the class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


def pass_over_worker_notes(client: Any) -> None:
    """Let commands of this session's client yield answers only."""

    def answers(command: Any, observations: Any = None) -> Iterator[dict[str, Any]]:
        request = client._execute_plan_request_with_metadata()  # noqa: SLF001 - what the method replaced here calls
        client._set_command_in_plan(request.plan, command)  # noqa: SLF001 - as above
        found = client._execute_and_fetch_as_iterator(request, observations or {})  # noqa: SLF001 - as above
        yield from (answer for answer in found if isinstance(answer, dict))

    client.execute_command_as_iterator = answers
