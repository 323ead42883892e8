// Package powerloss lets whole volumes lose power. Real engine and replica processes serve a volume
// whose replicas lie on real file systems on disks that write down what reaches them (package
// powerdisk). Afterwards moments of that history are made again, each with a state of every disk
// that a loss of power could have left: the file systems are mounted, which replays their journals,
// replicas and an engine are started on what is there, and the volume is compared with everything
// that was ever written and acknowledged.
//
// What is looked for: a flushed write that is gone, a value that was never written or is older than
// it may be, a directory that does not open, a volume that does not start, replicas that differ, a
// stale replica that serves, a snapshot that is missing or changed. A missing fsync anywhere below
// the engine ends in one of them, and TestMissingSyncsAreNoticed takes some out to see that it
// does.
package powerloss
