"""Events, formats and filters that are not right."""

from __future__ import annotations

from heliograph.errors.base import ROOT, HeliographError
from heliograph.errors.sentences import listed, of_batch


class FormatError(HeliographError):
    """A format description or an event class cannot be right."""

    reason: str
    """What is wrong, without the path of the field."""
    path: str = ROOT
    """The field, such as `$.position.lat`; `$` is the whole record."""

    def __str__(self) -> str:
        return self.reason if self.path == ROOT else f"{self.reason} (at {self.path})"


class IncompatibleFormats(FormatError):
    """Events of one format cannot be read as another.

    Attributes:
        writer: name of the format the events were written with.
        reader: name of the format they should be read as.
        problems: one sentence per field that does not fit.
        channel: whose history holds the events, or would; None where that is not what was asked.
        stations: the one that pushed them and the one that keeps the channel, where those are two.
    """

    def __init__(
        self,
        writer: str,
        reader: str,
        problems: tuple[str, ...],
        channel: str | None = None,
        stations: tuple[str, str] | None = None,
    ) -> None:
        fields = listed(problems, joint="; ")
        if stations is not None:
            sentence = (
                f"{channel}: {writer!r} as {stations[0]} has it does not go together with the version of "
                f"{stations[1]}, which keeps the channel, so nothing was kept: {fields}; give the class "
                "another name=, or a field that fits"
            )
        elif channel is not None:
            sentence = (
                f"{channel}: its history holds events {writer!r} that do not go together with this class: "
                f"{fields}; give the class another name=, or a field that fits"
            )
        elif writer == reader:
            sentence = f"{writer!r} cannot be read in another version of its class: {fields}"
        else:
            sentence = f"{writer!r} cannot be read as {reader!r}: {fields}"
        super().__init__(sentence)
        self.writer = writer
        self.reader = reader
        self.problems = problems
        self.channel = channel
        self.stations = stations


class TooManyFormats(FormatError):
    """A registry keeps no more formats: a peer that describes ever new ones is mistaken or hostile.

    Attributes:
        name: of the format that was one too many.
        limit: how many are kept.
        unit: `formats`, or `bytes` of their descriptions.
    """

    def __init__(self, name: str, limit: int, unit: str) -> None:
        super().__init__(
            f"{limit} {unit} are known already, so {name!r} is not learned; "
            "use the event types that are there, or fewer channels in one station"
        )
        self.name = name
        self.limit = limit
        self.unit = unit


class UnknownFormat(FormatError):
    """No description is known for a format id.

    Attributes:
        format_id: the id that was asked for.
    """

    retriable = True

    def __init__(self, format_id: bytes) -> None:
        super().__init__(
            f"no description of format {format_id.hex()} is known here; "
            "it arrives with the first event of a journal or link, or register() it"
        )
        self.format_id = format_id


class SchemaChanged(FormatError):
    """Events have fields for which a running query has no column.

    Attributes:
        event: name of the event type.
        fields: one sentence per field.
    """

    def __init__(self, event: str, fields: tuple[str, ...]) -> None:
        super().__init__(
            f"{event!r} has changed since the query was planned: {listed(fields, joint='; ')}. Start the "
            "query again to get new columns, or choose schemaEvolution=ignore or rescue"
        )
        self.event = event
        self.fields = fields


class DecodeError(HeliographError):
    """Bytes do not hold what their format says. Nothing of the event is returned."""

    reason: str
    """What is wrong, without the path of the field."""
    path: str = ROOT
    """The field, such as `$.position.lat`."""

    def __str__(self) -> str:
        return f"{self.reason} (at {self.path})"


class BadRecord(DecodeError):
    """An event of a history does not hold what its format says.

    Attributes:
        partition: the folder of the partition.
        offset: where in it.
    """

    def __init__(self, partition: str, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.partition = partition
        self.offset = offset

    def __str__(self) -> str:
        return (
            f"the event at offset {self.offset} of {self.partition!r} cannot be decoded: {self.reason}; "
            "badRecords=skip leaves such events out, badRecords=column keeps their bytes"
        )


class InvalidEvent(HeliographError):
    """A value does not fit the type of its field."""

    event: str
    """Name of the event type."""
    reason: str
    """What is wrong and what would fit."""
    path: str = ROOT
    """The field, such as `$.position.lat`."""
    index: int | None = None
    """In `push_many`, which of the batch it is; none of them is pushed then."""

    def __str__(self) -> str:
        return f"{self.event}: {self.reason} (at {self.path}){of_batch(self.index)}"


class UnreadableFile(HeliographError):
    """A file of another tool cannot be read as events."""

    file: str
    reason: str
    """What is wrong with it, and what could be read."""

    def __str__(self) -> str:
        return f"{self.file}: {self.reason}"


class ExpressionError(HeliographError):
    """A filter or projection is wrong."""

    reason: str
    """What is wrong and what is allowed there."""
    text: str
    """The expression."""
    column: int
    """Where in the text, counted from 1."""

    def __str__(self) -> str:
        # A window around the column keeps the picture readable for long expressions.
        start = max(0, self.column - 1 - 60)
        window = self.text[start : start + 120].replace("\n", " ")
        return f"{self.reason} (column {self.column})\n  {window}\n  {' ' * (self.column - 1 - start)}^"
