// Package powerdisk is a disk that loses power. It is a block device of the machine that real file
// systems and real processes use, it writes down everything they do to it, and afterwards it can be
// made again as a loss of power at any moment could have left it.
//
// A Disk is one file of a FUSE file system that the test serves itself, with a loop device in
// direct mode on it. What reaches it is what a real disk would get: writes, discards and flushes,
// in the order the kernel sent them. All Disks of a Journal number their events together, and the
// test adds its own (Note), so that one number is one moment for every disk and for every
// acknowledgement.
//
// What a moment leaves on a disk follows the rule that a disk with a write cache obeys and no more:
// a write is certain to be there when a flush has been answered that was sent after the write was
// answered. Of everything else any part may be there, in sectors of 512 bytes. To make that rule
// bite, the disk answers what it got together in another order than it came in, and sometimes lets
// a write wait until something else has come. Replay goes through a journal and makes these states.
//
// An Image costs memory only for what is not zero and is shared page by page, so a state costs
// nothing until it is used.
//
// Everything lies below one directory per process, which is locked. What a killed process left,
// mounts that have no server any more, loop devices, processes, is found by that directory and
// removed by the next one (Sweep); nothing else is touched.
package powerdisk
