// Package enginev1 is the control interface that every engine serves on its one port: its state as
// a stream, admitting and dropping replicas, taking snapshots. engine.proto says what each call
// does; the rest is generated from it.
package enginev1
