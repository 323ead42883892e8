// Package bimrpc has the service of a backing image manager, with the method names and field
// numbers that clients of the reference know. bimrpc.proto says what each call does; the rest is
// generated from it.
package bimrpc
