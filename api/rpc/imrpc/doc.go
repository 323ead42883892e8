// Package imrpc is the process service of an instance manager, with the method names and field numbers that clients of the
// reference know. process.proto says what each call does; the rest is generated from it.
package imrpc
