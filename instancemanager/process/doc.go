// Package process starts, watches and stops the instances of a node: engine and replica processes.
//
// An instance is a plain process of its own process group with a name, a run of TCP ports and a log
// file. It goes through these states:
//
//	starting ──> running ──> stopping ──> stopped   exit status 0
//	    │           │            │
//	    └───────────┴────────────┴──────> error     could not be started, or any other end
//
// It is running when the gRPC health service at its first port answers SERVING (at once, if it has
// no ports). A process that ends stays in the list, with its ports, until it is deleted; Delete of
// a live one asks it to stop (SIGINT, later SIGKILL, always to the whole group) and takes it out of
// the list when it has ended.
//
// Manager owns all of it. Everything that can be seen from outside changes under one lock, and
// every change gets the next revision and goes to the watchers in that order. Each process has one
// goroutine (Process.run) that alone sends it signals and reaps it, so a signal can never reach a
// recycled process number.
//
// No instance outlives the instance manager: processes are started from one OS thread that lives as
// long as the Manager, with SIGKILL as parent death signal. Nothing is adopted at start, because
// nothing can be left. What an instance has started outside its group carries a mark in its
// environment and is looked for when the instance has ended, and at the next start.
package process
