//! Mutants: bugs that the tests must catch. Compiled only with the feature `planted`, for tests alone.
//!
//! A mutant is in force on the thread that planted it; a simulation runs a whole world on one.

use std::cell::Cell;

/// A bug that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// Writes are acknowledged before they are synced, whatever the durability.
    AckBeforeSync,
    /// A write or a sync that failed counts as done, as if a second sync had meant anything.
    FailedSyncForgotten,
    /// The directory is not synced after a segment is made.
    NoDirectorySync,
    /// A record passes whether or not its checksums do.
    RecordWithoutChecksum,
    /// Recovery leaves a torn tail in the file.
    TornTailKept,
    /// Compaction drops a value that the ledger points at.
    LiveRecordDropped,
    /// A merge drops a deletion though a deeper level has what it hides.
    DeletionDroppedEarly,
    /// Nothing of the disk's free space is kept back for what must be written when there is little left.
    NoReserve,
    /// The cache of blocks grows without a bound.
    CacheUnbounded,
    /// Writes are taken however much waits for its flush or merge.
    NoBackPressure,
    /// An unclean start takes the dot counter up where the last lease began.
    DotReused,
    /// A write that a replica missed leaves no hint.
    HintDropped,
    /// A hint is applied as a write of its own instead of being joined.
    HintAppliedTwice,
    /// A store keeps its actor over restarts in a cluster, so that a restored disk gives dots out again.
    DotReusedAfterRestore,
    /// A version that a read repairs replaces what the replica has.
    RepairOverwrites,
    /// Each vnode counts as a node of its own where copies must be on different nodes.
    QuorumFromOneNode,
    /// A read answers the first head that it got, though others differ.
    FrontierIgnored,
    /// A fallback's reply counts as a primary's.
    FallbackAsPrimary,
    /// A request whose client has stopped waiting is answered when its replies come.
    ReplyAfterDeadline,
    /// A tombstone is reaped as soon as the primaries have it: nobody is asked for hints, nobody remembers it.
    ReapWithHintOutstanding,
    /// What comes late for a key that was reaped is stored.
    GraveyardIgnored,
    /// The context of a key is folded as one primary sees it: nobody is asked, nobody remembers it.
    FoldedUnasked,
    /// What comes late for a key whose context was folded is stored.
    FoldedLateStored,
    /// A node that stands in keeps its actor when it has forgotten what it wrote.
    StandInActorKept,
    /// A member that cannot be reached agrees to every reaping.
    DownMemberCountsAsYes,
    /// A listing leaves out the partitions that nobody who can be reached holds.
    ListingCutShort,
    /// Two nodes are asked for one of the partitions of a listing.
    ListedByTwo,
    /// The last row of a part's page is told again with its next one.
    RowsToldTwice,
    /// An index query goes on a little behind the end of a page.
    RowsSkippedAtAPage,
    /// A vnode that has given its partition up answers index queries all the same.
    GivenUpSearched,
    /// A listing shows keys that were deleted.
    DeletedListed,
    /// Of two changes of a bucket that were made at the same time, the one that is heard of last holds.
    TieByArrival,
    /// A ring that is older than the one that is known takes its place.
    StaleRingAccepted,
    /// A write to a partition that moves is confirmed before its next holder has it: two have it as their own.
    MoveNotPassedOn,
    /// A copy is told to be done when it has begun.
    CopyToldEarly,
    /// A copy that was interrupted begins anew.
    CopyBegunAnew,
    /// A range is dropped as soon as owners have changed, while others still go by the ring before.
    RangeDroppedEarly,
    /// The ring is switched to owners that have not copied what they are to have.
    SwitchedUncopied,
    /// Requests wait to be begun, however many there are.
    QueueUnbounded,
    /// What comes too late is refused when its time is over, and not before.
    RefusedLate,
    /// What was copied for one target counts for the next one, too.
    CopyCountedTwice,
    /// A write that another node has passed on is passed on again.
    ForwardingLoop,
    /// An index entry that an update takes from an object stays.
    StaleIndexEntry,
    /// The index entries of an object that is deleted stay.
    EntryOfDeleted,
    /// A version that a repair brings does not change the tree of hashes.
    TreeNotUpdatedOnRepair,
    /// A start takes the newest trees that were kept, whatever the tables have.
    TreeAheadAfterCrash,
    /// A key that moves from one day's tree of hashes to another's stays in the first as well.
    DayNotLeft,
    /// A store shows what has ended until a merge drops it.
    EndIgnored,
    /// An erase deletes what there is when it comes to a key, and not what its fold has found.
    ErasedUnseen,
    /// A gauge is exported to Prometheus as a counter.
    GaugeAsCounter,
    /// A series has a key of a client as a label, so that their number grows with that of keys.
    KeyAsLabel,
    /// A change that is refused has no line in the audit log.
    AuditLineMissing,
    /// A slow request is a line of the log when it ends, and not while it waits.
    SlowLineAtTheEnd,
    /// A node says that it is ready while a store takes no writes.
    ReadyWithoutWrites,
    /// A node opens its doors before it has read its security policy.
    SecurityOffAfterRestart,
    /// An entry of the metadata log is committed when one voter has it.
    CommittedEntryLost,
    /// A snapshot of the metadata log replaces a newer state.
    StaleSnapshotAccepted,
    /// A member goes on voting with a data folder that is older than its record in the cluster.
    RestoredVotes,
    /// A voter whose metadata log was restored votes before it has compared with the other members.
    RestoredLogVotes,
    /// Replicas join, repair and reap versions of consistent types by themselves.
    RepairBesideGroup,
    /// A put of a consistent object without a context replaces what is there.
    BlindPutReplaces,
    /// A context of another key is taken for none in a write of a consistent object.
    ForeignContextIgnored,
    /// A voter of a consistent group writes its term, and not the candidate that got its vote.
    VoteNotDurable,
    /// A voter of a consistent group acknowledges entries before they are synced.
    EntryAckedBeforeSync,
    /// The leader of a consistent group answers a write when its own journal has it.
    AckBeforeMajority,
    /// The leader of a consistent group serves reads before it has applied the first entry of its term.
    ReadBeforeNoop,
    /// A condition fails by a proposal that is not applied, and without a confirmed read.
    FailedByProposedHead,
    /// A condition fails by a version that is applied, and without a lease or a confirmed read.
    FailedWithoutLease,
    /// The leader of a consistent group decides conditions before it has applied the first entry of its term.
    ConditionBeforeNoop,
    /// A leader that loses its leadership answers "unavailable" for writes that may be applied later.
    UnavailableButApplied,
    /// A condition is compared with the applied version, beside a proposal for the same key.
    CasBesideProposal,
    /// All confirmed reads of a term have the same context, so a late answer confirms a later read.
    ReadIndexReused,
    /// An answer to a read confirms all reads with lower contexts, even if it is for an earlier process.
    ReadAnswerOfAnotherLife,
    /// A follower of a consistent group serves reads that its leader has not confirmed.
    ReadUnconfirmed,
    /// A part of a catch-up is made of the fold of an earlier one.
    FoldOfAnotherCatchUp,
    /// A read that was confirmed before a snapshot is served with the snapshot's keys, some of which are older.
    ReadAcrossSnapshot,
    /// A voter takes part before the cluster has registered the start of its process.
    CloneVotesBeforeRegistered,
    /// A voter that lacks entries that it acknowledged drops the message that shows it, and goes on voting.
    ForgotUnnoticed,
    /// A voter votes though a proposal that it may have acknowledged is damaged.
    DamagedProposalVotes,
    /// A store with a damaged state of a group keeps its birth, so it votes again in terms that the state had.
    DamagedStateVotes,
    /// A store that lost its data keeps its birth, so it votes again in terms that it does not remember.
    LostDiskVotes,
    /// A store that is restored from a backup keeps its birth, so it votes without what it promised since.
    RestoredBirthKept,
    /// Restored stores take part in groups before an operator has chosen among the copies.
    HoldIgnored,
    /// A birth counts while the manifest still says that something may be lost.
    BirthBeforeManifest,
    /// Of the copies of a group after a restore, the one with the least of its log goes on.
    WorseCopyChosen,
    /// A group goes on after a recovery in the epoch of the lost members.
    EpochKept,
    /// A receiver that must be refilled keeps its keys of a consistent group.
    SnapshotPartKept,
    /// A catch-up of a consistent group that goes on takes the index of a later part for its snapshot's.
    CatchUpResumedNewer,
    /// Tombstones are reaped that a voter, or the receiver of a catch-up, has not heard of.
    ReapedTooEarly,
    /// A leader counts a promise from the receipt of the message that tells of it, and not from its own stamp.
    LeaseFromReceipt,
    /// A leader counts answers that voters gave in an earlier term.
    LeaseWithoutTerm,
    /// A leader serves a read by a reading of the clock that is older than the read.
    LeaseByOldClock,
    /// A process votes right after its start, whatever it has promised in its life before.
    PromiseForgotten,
    /// A promise that was closed goes on under its number when it is renewed.
    PromiseRevived,
    /// A message renews a promise though its sender hears nothing.
    RenewedOneWay,
    /// A leader counts the promise of another life of a voter's process.
    LeaseAcrossLife,
    /// A leader with a lease reads before it has applied all that is committed.
    LeaseBehindCommit,
    /// A voter keeps the promise to a leader of an earlier term, which does not lead any more.
    PastLeaderFollowed,
    /// A leader keeps its lease when it asks another voter to lead.
    LeaseAfterHandOver,
    /// A leader that leaves takes no requests until another one leads, however long that takes.
    TransferNeverAborted,
    /// A follower that takes over a higher term forgets the leader to which its promise holds.
    FollowerForgotLeader,
    /// A voter whose group was unloaded forgets the leader to which its promise holds.
    DormantForgotLeader,
    /// Dormant groups are not loaded when the process of their leader ends.
    DormantNotWoken,
    /// A leader whose group was unloaded, and has no room again, does not say that it leads no more.
    SleepingLeaderBlocks,
    /// A group is recovered without a majority that is not declared lost.
    RecoveredWhileVoterLives,
    /// A forwarded write that comes twice is executed twice.
    ForwardExecutedTwice,
    /// A group that settled without a voter is not woken when the voter comes back.
    SleeperNotWoken,
    /// A group settles though a voter may not know that the last entry is committed.
    CommitNoteLost,
    /// A voter that is probed gets no heartbeats, so a lost probe is never repeated.
    ProbePaused,
    /// A memtable is put aside without the states of the groups whose commit marks it has.
    FrozenWithoutGroupState,
    /// An entry of a group's log leaves those above it that a leader before had made.
    ConflictKept,
    /// A start applies all entries of a group where it finds a commit mark of some.
    AppliedPastMark,
    /// A start reads entries of groups' logs only from where it replays all else.
    ReplayFromFlush,
    /// Entries of a group are appended again from the last one down, each in place of those above it.
    ReappendTruncates,
    /// A rebuild of the ledger takes entries of groups' logs for versions, whether they took effect or not.
    OverwrittenProposalRebuilt,
    /// Segments with entries that are not applied are compacted.
    ProposalCompacted,
    /// A grant on a bucket covers each bucket whose name begins with that name.
    PermissionByPrefix,
    /// An IPv4 network is mapped into IPv6 with its prefix as it is, so `0.0.0.0/0` has peers of IPv6.
    V4NetMatchesMapped,
    /// Of two sources with prefixes of the same length the one for all users decides.
    AllBeforeUser,
    /// The first attribute of a certificate's subject names the user, of any type.
    CnFromAnyRdn,
    /// A walk over groups goes through a group as often as it is met.
    GroupCycleHangs,
    /// An empty password is verified like any other.
    EmptyPasswordAccepted,
    /// The address in a header of the client counts for the source of a login.
    ForwardedForBelieved,
    /// Plaintext that came behind STARTTLS is taken for bytes of the encrypted stream.
    StartTlsPlaintextKept,
    /// A connection from before security was on stays without a login.
    OpenConnectionStaysTrusted,
    /// A connection with a login keeps the policy of its login.
    RevokeUnseen,
    /// The permissions of a fold are not asked for.
    RouteWithoutPermission,
    /// A cached login holds for each credential of its user.
    CacheSurvivesPasswordChange,
    /// A change of the policy makes each remembered login cost a hash again.
    HerdOnPolicyChange,
    /// A connection goes on with a certificate that was revoked after its handshake.
    ResumedAfterRevocation,
    /// Clients and nodes may have one authority, so that a client can join and a node can log in.
    ClientCertificateJoins,
    /// Certificates of nodes are verified at the ports of clients, so that a node can log in as a user of its name.
    PeerCertificateLogsIn,
}

thread_local! {
    static PLANTED: Cell<Option<Planted>> = const { Cell::new(None) };
}

/// Plants `bug` on this thread, or with `None` digs it up.
pub fn plant(bug: Option<Planted>) {
    PLANTED.set(bug);
}

/// Whether `bug` is in force on this thread.
pub fn is_planted(bug: Planted) -> bool {
    PLANTED.get() == Some(bug)
}
