// Package chain is a replica's directory: the files that hold a volume's content on one disk, what they mean, and
// what each operation does to them.
//
// A volume's content is a chain of sparse files. The bottom file is the oldest snapshot, the top one is the head, the
// only one that normal writes go to. A 4 KiB block is read from the topmost file that has an extent there; a block no
// file has reads as zeroes (or from a backing file below all of them). Taking a snapshot rotates the head: its file
// gets the snapshot's name and an empty new head is put on top. volume.meta names the head and each file's .meta its
// parent; the format is the one of docs/format-replica.md, shared with other engines in both directions.
//
// A Chain has three faces:
//
//   - the data path's: ReadPlan, MarkWritten, ZeroPlan, MarkPunched, HeadHandle. They only look at and
//     change the block map in memory, never block and never fail, so a step core calls them inline. They say which
//     bytes of which file an I/O touches; the core does the I/O through its loop.
//   - metadata operations: Open, Snapshot, Expand, WriteRecord, … They block on the disk.Meta they were given. The
//     caller runs them off its loop, one at a time; those that change the chain's files or the map (Snapshot, Expand,
//     Remap, Close, FinishRebuild) need the volume's I/O to be held back meanwhile, the sidecars' (WriteRecord,
//     WriteDirty, SetRevisionCounter) do not.
//   - tools over closed directories: Create, CreateSkeleton, Inspect.
//
// Every operation that changes names has one committing step, the replacement of volume.meta; a crash before it
// leaves the old state, a crash after it the new one, and Open clears what either left lying about. A failed sync
// breaks the Chain for good: every later operation that would have to be durable fails, and the process is expected
// to end.
//
// Nothing in this package starts a goroutine, takes a lock or reads a clock.
package chain
