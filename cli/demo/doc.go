// Package demo is the demonstration behind "ankole demo": it shows on a running cluster that a
// volume survives the loss of a replica, with real files, real processes and nothing pretended.
//
// It makes a volume, attaches it, puts a tree of files on it, starts a writer that flushes as a
// database would, kills one replica process with SIGKILL, watches the rebuild while the writer goes
// on, and then reads everything back and compares checksums. The volume stays attached; run again,
// the demonstration first verifies the files of the last time and uses them.
//
// Where the volume is a block device and may be mounted, the files are on a mounted ext4. Otherwise
// the same tree is made into an ext4 image with mkfs.ext4 and copied through the endpoint, and read
// back as files with debugfs; neither needs root.
//
// It kills only replica processes of the volume it was told to use: a process counts as one if its
// command line names the replica's data directory, whose name is random.
package demo
