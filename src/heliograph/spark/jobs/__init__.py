"""Jobs over the history of channels, on Spark.

    from heliograph.spark import jobs

    jobs.archive(spark, "data", "air.tracks", "tables/tracks", format="delta")
    jobs.quality(spark, "data", "air.tracks", expect=["speed BETWEEN 0 AND 1200"])
    jobs.snapshot(spark, "data", "air.tracks", "tables/latest")
    jobs.correlate(spark, "data", "storms", "tables/storms")
    jobs.register("data", "air.tracks", "tables/sealed", format="iceberg")
    jobs.align(spark, "data", ["robot.imu", "robot.gps"], "tables/train", grid=0.01)
    jobs.cutouts(spark, "data", "air.tracks", "tables/alarms", when="speed > 900", before=10, after=5)
    jobs.report(spark, "data", "report.html")

Each checks its arguments when it is made, so that a mistake is found before Spark starts; each says in
numbers what it did, and goes on where the last run of it ended. `helio pipeline` runs them from the shell.
"""

from __future__ import annotations

from heliograph.spark.jobs.align import Aligned, AlignJob, align
from heliograph.spark.jobs.archive import Archived, ArchiveJob, archive
from heliograph.spark.jobs.correlate import Correlated, CorrelateJob, correlate
from heliograph.spark.jobs.cutouts import CutOutJob, CutOuts, cutouts
from heliograph.spark.jobs.latency_sketch import Sketch
from heliograph.spark.jobs.quality import DeliveryLatency, Expectation, Quality, QualityJob, quality
from heliograph.spark.jobs.quality_events import QualityRecord, Quarantined
from heliograph.spark.jobs.register import Registered, RegisterJob, register
from heliograph.spark.jobs.replay import replay
from heliograph.spark.jobs.report import ChannelReport, JobReport, ReportJob, report
from heliograph.spark.jobs.snapshot import JobSnapshot, SnapshotJob, snapshot
from heliograph.spark.jobs.snapshot_state import SnapshotState, load_snapshot

__all__ = [
    "AlignJob",
    "Aligned",
    "ArchiveJob",
    "Archived",
    "ChannelReport",
    "CorrelateJob",
    "Correlated",
    "CutOutJob",
    "CutOuts",
    "DeliveryLatency",
    "Expectation",
    "JobReport",
    "JobSnapshot",
    "Quality",
    "QualityJob",
    "QualityRecord",
    "Quarantined",
    "RegisterJob",
    "Registered",
    "ReportJob",
    "Sketch",
    "SnapshotJob",
    "SnapshotState",
    "align",
    "archive",
    "correlate",
    "cutouts",
    "load_snapshot",
    "quality",
    "register",
    "replay",
    "report",
    "snapshot",
]
