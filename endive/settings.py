"""The shape of a configuration file: every key, its type, its range and its default, each told once.

What only several keys together can break is checked in `config_rules`. Durations are milliseconds unless a name
says otherwise.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from endive.catalog import Scope
from endive.policy import History, Isolation, JitterKind, ListPer, Overlap, RealConflictAction
from endive.random_streams import SEED_MAX
from endive.storage import (
    EmpiricalLatency,
    ExponentialLatency,
    FixedLatency,
    LatencyDistribution,
    LognormalLatency,
    NormalLatency,
    UniformLatency,
)

ProviderName = Literal["s3", "s3x", "azure", "azurex", "gcp", "instant"]
ProfileName = Literal["2025-06", "2025-12"]
CatalogType = Literal["cas", "append", "instant"]

Milliseconds = Annotated[float, Field(ge=0, le=1e15)]
PositiveMilliseconds = Annotated[float, Field(gt=0, le=1e15)]
Sigma = Annotated[float, Field(ge=0, le=20)]
Exponent = Annotated[float, Field(ge=0, le=100)]
Fraction = Annotated[float, Field(ge=0, le=1)]
PositiveFraction = Annotated[float, Field(gt=0, le=1)]
Rate = Annotated[float, Field(ge=0, le=1e9)]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
PositiveCount = Annotated[int, Field(ge=1, le=2**31 - 1)]
Population = Annotated[int, Field(ge=1, le=1_000_000)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class SettingsTable(BaseModel):
    """A TOML table: no key beyond these, no value of another type."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class ExponentialSettings(SettingsTable):
    """Memoryless times."""

    distribution: Literal["exponential"] = "exponential"
    scale: PositiveMilliseconds
    """Mean, in milliseconds, before the floor."""
    min: Milliseconds = 0.0
    """Floor, in milliseconds."""

    def to_latency(self) -> LatencyDistribution:
        return ExponentialLatency(self.scale, self.min)


class LognormalSettings(SettingsTable):
    """Times with a long tail."""

    distribution: Literal["lognormal"] = "lognormal"
    median: PositiveMilliseconds | None = None
    """Median, in milliseconds. Give this or `mean`."""
    mean: PositiveMilliseconds | None = None
    """Mean before the floor, in milliseconds. Give this or `median`."""
    sigma: Sigma
    """Standard deviation of the logarithm."""
    min: Milliseconds = 0.0
    """Floor, in milliseconds."""

    def to_latency(self) -> LatencyDistribution:
        if self.mean is not None:
            return LognormalLatency.from_mean(self.mean, self.sigma, self.min)
        assert self.median is not None
        return LognormalLatency.from_median(self.median, self.sigma, self.min)


class NormalSettings(SettingsTable):
    """Times spread evenly about a mean."""

    distribution: Literal["normal"] = "normal"
    mean: Milliseconds
    """Mean, in milliseconds, before the floor."""
    stddev: Milliseconds
    """Standard deviation, in milliseconds."""
    min: Milliseconds = 0.0
    """Floor, in milliseconds."""

    def to_latency(self) -> LatencyDistribution:
        return NormalLatency(self.mean, self.stddev, self.min)


class UniformSettings(SettingsTable):
    """Times anywhere between two bounds."""

    distribution: Literal["uniform"] = "uniform"
    low: Milliseconds
    """Shortest, in milliseconds."""
    high: PositiveMilliseconds
    """Longest, in milliseconds."""

    def to_latency(self) -> LatencyDistribution:
        return UniformLatency(self.low, self.high)


class FixedSettings(SettingsTable):
    """Always the same time."""

    distribution: Literal["fixed"] = "fixed"
    value: Milliseconds
    """The time, in milliseconds."""

    def to_latency(self) -> LatencyDistribution:
        return FixedLatency(self.value)


class EmpiricalSettings(SettingsTable):
    """Measured quantiles, joined by straight lines."""

    distribution: Literal["empirical"] = "empirical"
    probabilities: Annotated[tuple[Fraction, ...], Field(strict=False, min_length=2)]
    """Rising from 0 to 1."""
    values: Annotated[tuple[Milliseconds, ...], Field(strict=False, min_length=2)]
    """The quantile at each probability, in milliseconds; never falling."""

    def to_latency(self) -> LatencyDistribution:
        return EmpiricalLatency(self.probabilities, self.values)


def _tag_with_default(default: str) -> Discriminator:
    def tag(value: Any) -> str | None:
        if isinstance(value, dict):
            kind = value.get("distribution", default)
            return kind if isinstance(kind, str) else repr(kind)
        return getattr(value, "distribution", None)

    return Discriminator(tag)


_AnyDistribution: TypeAlias = (
    Annotated[ExponentialSettings, Tag("exponential")]
    | Annotated[LognormalSettings, Tag("lognormal")]
    | Annotated[NormalSettings, Tag("normal")]
    | Annotated[UniformSettings, Tag("uniform")]
    | Annotated[FixedSettings, Tag("fixed")]
    | Annotated[EmpiricalSettings, Tag("empirical")]
)
DistributionSettings = Annotated[_AnyDistribution, _tag_with_default("lognormal")]
ArrivalSettings = Annotated[_AnyDistribution, _tag_with_default("exponential")]


class SimulationSettings(SettingsTable):
    """How long to simulate, and where the results go."""

    duration_ms: PositiveMilliseconds
    """Simulated time, in milliseconds."""
    seed: Annotated[int, Field(ge=0, le=SEED_MAX)] | None = None
    """Seed of every random number. Without one, each run draws a seed and reports it."""
    output_path: str | None = None
    """Results file, for experiments without a label."""
    drain: bool = False
    """After the duration, take no more transactions but let those that run come to their end."""


class ExperimentSettings(SettingsTable):
    """Where an experiment is kept."""

    label: Name | None = None
    """With a label, results go to experiments/<label>-<hash>/<seed>/results.parquet."""


class ArtifactLatencySettings(SettingsTable):
    """Latencies of one kind of object that replace the provider's."""

    read: DistributionSettings | None = None
    """Reading it."""
    write: DistributionSettings | None = None
    """Writing it; of the catalog: swapping or appending to it."""


class LatencySettings(SettingsTable):
    """Latencies by kind of object."""

    catalog: ArtifactLatencySettings = ArtifactLatencySettings()
    """The catalog's pointer or log."""
    metadata: ArtifactLatencySettings = ArtifactLatencySettings()
    """Table metadata that is not inlined."""
    manifest_list: ArtifactLatencySettings = ArtifactLatencySettings()
    """Manifest lists."""
    manifest_file: ArtifactLatencySettings = ArtifactLatencySettings()
    """Manifest files."""


class StorageSettings(SettingsTable):
    """The object store that tables are kept on."""

    provider: ProviderName
    """The store."""
    profile: ProfileName = "2025-06"
    """When its latencies were measured."""
    max_parallel: PositiveCount = 4
    """How many historical lists or manifest files a client moves at a time."""
    cas_failure_latency: bool = False
    """Whether a failed compare-and-swap takes a time of its own, where one was measured."""
    append_failure_latency: bool = True
    """Whether a failed append takes a time of its own, where one was measured."""
    latency: LatencySettings = LatencySettings()
    """Latencies that replace the provider's."""


class PartitionSettings(SettingsTable):
    """Partitions of the tables."""

    num_partitions: Population = 1
    """Partitions of every table."""
    per_table: Annotated[tuple[Population, ...], Field(strict=False, min_length=1)] | None = None
    """Partitions of each table, instead of `num_partitions`."""


class AppendSettings(SettingsTable):
    """The log of an append catalog."""

    entry_bytes: PositiveCount = 100
    """Size of a log entry."""
    compaction_threshold_bytes: PositiveCount = 16_000_000
    """The log is sealed when the bytes since its checkpoint exceed this."""
    compaction_max_entries: Count = 0
    """The log is sealed when this many entries follow its checkpoint; 0: never."""
    max_physical_retries: Count = 100
    """Appends that may miss the end of the log before a commit fails."""
    compaction_latency: DistributionSettings | None = None
    """Time of a compaction; by default that of a compare-and-swap."""


class CatalogSettings(SettingsTable):
    """What commits are checked against, and how."""

    type: CatalogType | None = None
    """How a commit reaches the catalog; by default `cas` where the provider has it, else `append`."""
    provider: ProviderName | None = None
    """The store that the catalog is on, if not the tables'."""
    latency_ms: PositiveMilliseconds | None = None
    """The one latency of a catalog service, instead of a store's; 1 for `type = "instant"`."""
    num_tables: Population = 1
    """How many tables there are."""
    partitions: PartitionSettings = PartitionSettings()
    """How many partitions they have."""
    scope: Scope | None = None
    """What must be unchanged for a commit; by default `table` for `type = "append"`, else `catalog`."""
    num_groups: PositiveCount = 1
    """Table groups, for `scope = "group"`."""
    group_seed: Annotated[int, Field(ge=0, le=SEED_MAX)] = 0
    """Deals the tables to groups."""
    effect_point: Fraction = 1.0
    """When in a catalog operation's latency the catalog is read or changed: 0 at its start, 1 at its end."""
    table_metadata_inlined: bool = True
    """Whether the catalog holds table metadata; if not, it is read and written as an object of its own."""
    append: AppendSettings = AppendSettings()
    """The log, for `type = "append"`."""


class SelectionSettings(SettingsTable):
    """Which tables a transaction touches."""

    per_txn: PositiveCount = 1
    """How many each transaction reads."""
    selector: Literal["uniform", "zipf"] = "uniform"
    """How they are chosen."""
    alpha: Exponent = 1.5
    """Exponent of `selector = "zipf"`."""
    write_fraction: PositiveFraction = 1.0
    """The share of those read that are written; at least one is."""


class PartitionSelectionSettings(SettingsTable):
    """Which partitions a transaction touches in each of its tables."""

    per_txn: PositiveCount | None = None
    """How many each transaction reads in a table. Without it partitions are not tracked: all overlap."""
    selector: Literal["uniform", "zipf"] = "uniform"
    """How they are chosen."""
    alpha: Exponent = 1.5
    """Exponent of `selector = "zipf"`."""
    write_fraction: PositiveFraction = 1.0
    """The share of those read that are written; at least one is."""


class BackoffSettings(SettingsTable):
    """How long a client sleeps before a retry."""

    enabled: bool = False
    """Whether it sleeps at all."""
    base_ms: Milliseconds = 10.0
    """Before the first retry."""
    multiplier: Annotated[float, Field(ge=1, le=1e9)] = 2.0
    """Growth from retry to retry."""
    max_ms: Milliseconds = 5000.0
    """Longest sleep, before jitter."""
    jitter: Fraction = 0.1
    """Share of the sleep that is random."""
    jitter_kind: JitterKind = "symmetric"
    """`symmetric`: about the sleep; `iceberg`: whole milliseconds on top of it."""


class AttemptCostSettings(SettingsTable):
    """Storage operations of an attempt, for each table."""

    manifest_list_reads: Count | None = None
    """Manifest lists read."""
    manifest_list_writes: Count | None = None
    """Manifest lists written (or appended to)."""
    manifest_file_reads: Count | None = None
    """Manifest files read."""
    manifest_file_writes: Count | None = None
    """Manifest files written."""


class MissedCommitCostSettings(SettingsTable):
    """Storage operations for each missed commit; multiplied, then floored."""

    historical_ml_reads: Rate | None = None
    """Manifest lists of past snapshots read."""
    manifest_file_reads: Rate | None = None
    """Manifest files read."""
    manifest_file_writes: Rate | None = None
    """Manifest files written."""


class CostSettings(AttemptCostSettings):
    """Costs of an operation type. Counts given here hold for first and redone attempts alike."""

    like: Literal["fast_append", "merge_append", "validated_overwrite"] | None = None
    """The type whose costs an added type starts from; by default `fast_append`."""
    redone: AttemptCostSettings = AttemptCostSettings()
    """Attempts after a write overlap, where they differ."""
    per_missed_commit: MissedCommitCostSettings = MissedCommitCostSettings()
    """What each commit that was missed costs after an overlap."""
    can_conflict: bool | None = None
    """Whether its data can conflict."""


class ConflictingManifestSettings(SettingsTable):
    """Manifest files that a merged real conflict reads and writes."""

    distribution: DistributionSettings = ExponentialSettings(scale=3.0)
    """How many, before rounding down."""
    min: Count = 1
    """Fewest."""
    max: PositiveCount = 10
    """Most."""


class StreamFields(SettingsTable):
    """What a stream of transactions is made of. A stream is open (`inter_arrival`) or closed (`clients`)."""

    inter_arrival: ArrivalSettings | None = None
    """Time between arrivals."""
    clients: Population | None = None
    """Clients that each wait for their transaction to end, think, and submit the next."""
    think_time: DistributionSettings | None = None
    """How long a client thinks."""
    runtime: DistributionSettings | None = None
    """How long a transaction works between its first read and its first attempt to commit."""
    operation_types: dict[Name, Rate] | None = None
    """Weight of each operation type; by default fast_append 0.7, merge_append 0.2, validated_overwrite 0.1."""
    tables: SelectionSettings | None = None
    """Which tables a transaction touches."""
    partitions: PartitionSelectionSettings | None = None
    """Which partitions it touches."""


class StreamSettings(StreamFields):
    """One of several streams; what it leaves out is as in [transaction]."""

    name: Name
    """Names the stream in the results, and its random numbers."""


class TransactionSettings(StreamFields):
    """What transactions do, and how they commit."""

    retry: Count = 10
    """Retries after the first attempt."""
    total_timeout_ms: Milliseconds = 0.0
    """A retry starts only while the commit has lasted no longer; 0: no limit."""
    retry_backoff: BackoffSettings = BackoffSettings()
    """Sleep before retries."""
    real_conflict_probability: Fraction = 0.0
    """How often an overlap is a conflict of data, for operations that can conflict."""
    conflict_detector: Literal["probabilistic", "partition_overlap"] = "probabilistic"
    """What makes an overlap a conflict of data: chance, or a written partition that changed since the start."""
    on_real_conflict: RealConflictAction = "abort"
    """Give up, run the transaction again, or merge the conflicting manifests."""
    max_restarts: Count = 10
    """How often `on_real_conflict = "restart"` runs a transaction again."""
    conflicting_manifests: ConflictingManifestSettings = ConflictingManifestSettings()
    """What `on_real_conflict = "merge"` merges."""
    overlap: Overlap = "partition"
    """What must have changed for manifest work to be redone: a written partition, or a written table."""
    history: History = "catalog"
    """Which missed commits cost: all of the catalog's, or those to the overlapping tables."""
    isolation: Isolation = "snapshot"
    """`serializable` also checks what was read."""
    manifest_list_mode: Literal["rewrite", "append"] = "rewrite"
    """`append` is ML+: manifest lists are appended to."""
    manifest_list_entry_bytes: PositiveCount = 50
    """Size of an appended manifest-list entry."""
    manifest_list_seal_bytes: Count = 0
    """An appended manifest list past this is sealed, and rewritten by the next appender; 0: never."""
    manifests_per_concurrent_commit: Rate = 1.5
    """Manifest files that a merge append merges for each missed commit."""
    validation_manifests_per_commit: Rate = 0.0
    """Manifest files that a validated overwrite reads for each missed commit."""
    costs: dict[Name, CostSettings] = {}
    """Costs of operation types, or of types added here."""


class ManifestSettings(SettingsTable):
    """Sizes of objects, in bytes."""

    catalog_entry_bytes: PositiveCount = 100
    """What a catalog read or compare-and-swap moves."""
    table_metadata_bytes: PositiveCount = 1024
    """Table metadata."""
    manifest_list_bytes: PositiveCount = 10 * 1024
    """A manifest list of a new table."""
    manifest_file_bytes: PositiveCount = 100 * 1024
    """A manifest file."""
    entry_bytes: Count = 0
    """Growth of a table's manifest list with each commit."""
    list_per: ListPer = "table"
    """What has a manifest list of its own."""


class Settings(SettingsTable):
    """An Endive configuration."""

    simulation: SimulationSettings
    """How long to simulate."""
    experiment: ExperimentSettings = ExperimentSettings()
    """Where to keep the results."""
    storage: StorageSettings
    """The store."""
    catalog: CatalogSettings = CatalogSettings()
    """The catalog."""
    transaction: TransactionSettings = TransactionSettings()
    """The transactions."""
    manifests: ManifestSettings = ManifestSettings()
    """The objects."""
    streams: Annotated[tuple[StreamSettings, ...], Field(strict=False)] = ()
    """Several streams over one catalog, instead of the one that [transaction] describes."""
