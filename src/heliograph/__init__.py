"""Heliograph: a real-time event service for Python, with its data pipeline on Spark.

    import heliograph as hg

Public names load when they are first used: importing this package loads neither Spark, pyarrow, numpy nor
the parser of the filter language.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from heliograph._version import __version__

if TYPE_CHECKING:
    from typing import Any as Any

    from heliograph import testing as testing
    from heliograph.channel.channel import Channel as Channel
    from heliograph.channel.derived_channel import DerivedChannel as DerivedChannel
    from heliograph.channel.ledger import ChannelStats as ChannelStats
    from heliograph.channel.parameters import Parameter as Parameter
    from heliograph.channel.parameters import ParameterState as ParameterState
    from heliograph.channel.publish.supplier import Supplier as Supplier
    from heliograph.channel.receive.consumer import Consumer as Consumer
    from heliograph.channel.receive.delivery import Delivery as Delivery
    from heliograph.channel.resync.subscription import Resync as Resync
    from heliograph.delivery.records import DeliveryRecord as DeliveryRecord
    from heliograph.delivery.records import LedgerRecord as LedgerRecord
    from heliograph.errors import AnswererBusy as AnswererBusy
    from heliograph.errors import AnswererLost as AnswererLost
    from heliograph.errors import AnswerFailed as AnswerFailed
    from heliograph.errors import AnswerTimeout as AnswerTimeout
    from heliograph.errors import AppendTimeout as AppendTimeout
    from heliograph.errors import ChannelError as ChannelError
    from heliograph.errors import ChannelExists as ChannelExists
    from heliograph.errors import Closed as Closed
    from heliograph.errors import DecodeError as DecodeError
    from heliograph.errors import DeliveryTimeout as DeliveryTimeout
    from heliograph.errors import DiskError as DiskError
    from heliograph.errors import DiskFull as DiskFull
    from heliograph.errors import EventChannelNotFound as EventChannelNotFound
    from heliograph.errors import EventsUnderWay as EventsUnderWay
    from heliograph.errors import ExpressionError as ExpressionError
    from heliograph.errors import FolderInUse as FolderInUse
    from heliograph.errors import ForkedStation as ForkedStation
    from heliograph.errors import FormatError as FormatError
    from heliograph.errors import GivenUp as GivenUp
    from heliograph.errors import HeliographError as HeliographError
    from heliograph.errors import HistoryDamaged as HistoryDamaged
    from heliograph.errors import HistoryGone as HistoryGone
    from heliograph.errors import HistoryReset as HistoryReset
    from heliograph.errors import IncompatibleFormats as IncompatibleFormats
    from heliograph.errors import InvalidEvent as InvalidEvent
    from heliograph.errors import InvalidQoS as InvalidQoS
    from heliograph.errors import JournalError as JournalError
    from heliograph.errors import LinkError as LinkError
    from heliograph.errors import ManagerAway as ManagerAway
    from heliograph.errors import ManagerFenced as ManagerFenced
    from heliograph.errors import NameAlreadyUsed as NameAlreadyUsed
    from heliograph.errors import NoAnswerer as NoAnswerer
    from heliograph.errors import NoJava as NoJava
    from heliograph.errors import NoOffer as NoOffer
    from heliograph.errors import NoParameters as NoParameters
    from heliograph.errors import NoState as NoState
    from heliograph.errors import NoSuchChannel as NoSuchChannel
    from heliograph.errors import NotAMember as NotAMember
    from heliograph.errors import NoThreadLeft as NoThreadLeft
    from heliograph.errors import NotMatched as NotMatched
    from heliograph.errors import NotOwner as NotOwner
    from heliograph.errors import NotPossible as NotPossible
    from heliograph.errors import NotReentrant as NotReentrant
    from heliograph.errors import ParameterRefused as ParameterRefused
    from heliograph.errors import QueueFull as QueueFull
    from heliograph.errors import StateFailed as StateFailed
    from heliograph.errors import SupplierFenced as SupplierFenced
    from heliograph.errors import SupplierHeld as SupplierHeld
    from heliograph.errors import Suspended as Suspended
    from heliograph.errors import UnknownFormat as UnknownFormat
    from heliograph.errors import WouldDeadlock as WouldDeadlock
    from heliograph.errors import WrongEventType as WrongEventType
    from heliograph.federation.crossing import CrossingStats as CrossingStats
    from heliograph.federation.gateway import Gateway as Gateway
    from heliograph.filters.build import col as col
    from heliograph.filters.build import param as param
    from heliograph.flight_recorder import CutOut as CutOut
    from heliograph.flight_recorder import FlightRecorder as FlightRecorder
    from heliograph.history_table import HistoryTable as HistoryTable
    from heliograph.history_table import history as history
    from heliograph.journal import Limits as Limits
    from heliograph.journal import Store as Store
    from heliograph.manager.roster import Activity as Activity
    from heliograph.model.annotations import Digits as Digits
    from heliograph.model.annotations import Length as Length
    from heliograph.model.annotations import Shape as Shape
    from heliograph.model.annotations import f32 as f32
    from heliograph.model.annotations import f64 as f64
    from heliograph.model.annotations import i8 as i8
    from heliograph.model.annotations import i16 as i16
    from heliograph.model.annotations import i32 as i32
    from heliograph.model.annotations import i64 as i64
    from heliograph.model.annotations import u8 as u8
    from heliograph.model.annotations import u16 as u16
    from heliograph.model.annotations import u32 as u32
    from heliograph.model.annotations import u64 as u64
    from heliograph.model.event import Event as Event
    from heliograph.model.event import EventId as EventId
    from heliograph.model.event import Header as Header
    from heliograph.model.event import format_of as format_of
    from heliograph.model.formats import Format as Format
    from heliograph.monitoring.station_events import StationEvent as StationEvent
    from heliograph.monitoring.why import why as why
    from heliograph.patterns.pattern import after as after
    from heliograph.patterns.pattern import all_of as all_of
    from heliograph.patterns.pattern import any_of as any_of
    from heliograph.patterns.pattern import every as every
    from heliograph.patterns.pattern import none_of as none_of
    from heliograph.qos.explanation import explain as explain
    from heliograph.qos.policies import QoS as QoS
    from heliograph.qos.threads import Threads as Threads
    from heliograph.rehearsal import Rehearsal as Rehearsal
    from heliograph.rehearsal import rehearse as rehearse
    from heliograph.station import Station as Station

_HOMES = {
    "model.annotations": "Digits Length Shape f32 f64 i8 i16 i32 i64 u8 u16 u32 u64",
    "channel.receive.consumer": "Consumer",
    "channel.receive.delivery": "Delivery",
    "channel.channel": "Channel",
    "channel.derived_channel": "DerivedChannel",
    "channel.parameters": "Parameter ParameterState",
    "channel.resync.subscription": "Resync",
    "channel.ledger": "ChannelStats",
    "channel.publish.supplier": "Supplier",
    "patterns.pattern": "after all_of any_of every none_of",
    "delivery.records": "DeliveryRecord LedgerRecord",
    "errors": "AnswerFailed AnswerTimeout AnswererBusy AnswererLost NoAnswerer NoOffer NoState StateFailed "
    "AppendTimeout ChannelError ChannelExists Closed DecodeError DeliveryTimeout DiskError "
    "DiskFull EventChannelNotFound EventsUnderWay ExpressionError FolderInUse ForkedStation FormatError "
    "GivenUp HeliographError HistoryDamaged HistoryGone HistoryReset IncompatibleFormats InvalidEvent "
    "InvalidQoS JournalError LinkError ManagerAway ManagerFenced NameAlreadyUsed NoJava NoParameters "
    "NoSuchChannel NoThreadLeft NotAMember NotMatched NotOwner NotPossible NotReentrant ParameterRefused "
    "QueueFull SupplierFenced "
    "SupplierHeld Suspended UnknownFormat WouldDeadlock WrongEventType",
    "model.event": "Event EventId Header format_of",
    "federation.crossing": "CrossingStats",
    "federation.gateway": "Gateway",
    "filters.build": "col param",
    "model.formats": "Format",
    "journal": "Limits Store",
    "manager.roster": "Activity",
    "qos.explanation": "explain",
    "qos.policies": "QoS",
    "station": "Station",
    "history_table": "HistoryTable history",
    "monitoring.station_events": "StationEvent",
    "monitoring.why": "why",
    "rehearsal": "Rehearsal rehearse",
    "flight_recorder": "CutOut FlightRecorder",
    "qos.threads": "Threads",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

_ROOMS = ("testing",)

__all__ = ["Any", "__version__", *_HOME_OF, *_ROOMS]  # noqa: PLE0604 - all are strings


if not TYPE_CHECKING:  # for checkers the names are those above, and no others

    def __getattr__(name: str) -> Any:
        if name in _ROOMS:
            return import_module(f"heliograph.{name}")
        home = _HOME_OF.get(name)
        if home is None:
            raise AttributeError(f"module 'heliograph' has no attribute {name!r}")
        value = getattr(import_module(f"heliograph.{home}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
