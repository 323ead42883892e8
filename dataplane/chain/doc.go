// Package chain is a replica's directory: the files that hold a volume's content on one disk, what
// they mean, and what each operation does to them.
//
// A volume's content is a chain of sparse files. The bottom file is the oldest snapshot, the top
// one is the head, the only one that normal writes go to. A 4 KiB block is read from the topmost
// file that has an extent there; a block no file has reads as zeroes (or from a backing file below
// all of them). Taking a snapshot rotates the head: its file gets the snapshot's name and an empty
// new head is put on top. volume.meta names the head and each file's .meta its parent; the format
// is the one of docs/design/format-replica.md, shared with other engines in both directions.
//
// An open directory has three parts, which belong to different threads:
//
//   - Blocks is the data path's: the block map and the files it refers to. ReadPlan, MarkWritten,
//     ZeroPlan, MarkPunched, HeadHandle only look at and change memory, never block and never fail,
//     so a step core calls them inline. They say which bytes of which file an I/O touches; the core
//     does the I/O through its loop.
//   - Files is for metadata operations: Snapshot, Expand, WriteRecord, … They block on the
//     disk.Meta they were given. The caller runs them off its loop, one at a time. Those that
//     change where blocks are read from (Snapshot, Expand, Revert, a purge's Finish, FinishRebuild)
//     return a Change, which the owner of Blocks applies; I/O is held back from before the
//     operation until then. All others go on beside I/O.
//   - Sidecars are the member record, the dirty log, and what absent members have missed. A mark,
//     for which writes wait, needs nothing else; operations on Files that also need them are given
//     both.
//
// Files is made of parts itself, each with fields that nobody else changes and a comment that says
// which they are:
//
//   - directory: the folder, and whether it can still be made durable
//   - meta: what volume.meta and the layers' .meta say; reserve: how a file is replaced on a full
//     disk; copies: ankole.meta, which says what was changed from outside
//   - checksums: what is recorded about snapshots' files; Hash computes it
//   - whiteoutFiles: which files of whiteouts there are
//   - openFiles: the files of the live chain, what is in them, what an unclean stop has left there
//   - merges: the merge of two files that is under way; removal: how snapshots go (Purge, Trim)
//   - readers: open views, what they keep and write
//   - revision: another engine's counter
//   - opening and reshaping: what Open and Reshape do, for as long as they do it
//
// What one part has to know of the other goes between them as values: Where, Look, Below, Room,
// Repaired. Chain is all parts together, for tools and tests, which have one thread. Tools over
// closed directories are Create, CreateSkeleton, Inspect.
//
// Every operation that changes names has one committing step, the replacement of volume.meta; a
// crash before it leaves the old state, a crash after it the new one, and Open clears what either
// left behind. A failed sync breaks the Chain for good: every later operation that would have
// to be durable fails, and the process is expected to end.
//
// Nothing in this package starts a goroutine, takes a lock or reads a clock.
package chain
