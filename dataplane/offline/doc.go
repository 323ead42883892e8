// Package offline looks into replica directories while nothing else runs: no engine, no control
// plane, perhaps not even the machine they came from. It explains a directory, computes the
// checksum of what a volume held at a snapshot, copies that out as an image, and compares two
// directories.
//
// A directory here is one of ours or of a reference engine; the format is that of
// docs/design/format-replica.md. Reading goes through package chain, so what comes out is what a
// replica would serve. Explaining does not: Inspect takes a directory apart file by file and says
// what is wrong with each, because the directories one wants explained are those that do not open.
//
// It only reads: it opens files read-only, holds a shared lock that keeps engines of this kind out,
// and refuses a directory that somebody has open for writing.
package offline
