// Package imrpc has the services of an instance manager, with the method names and field numbers
// that clients of the reference know: processes (process.proto), the engine proxy (proxy.proto) and
// instances (instance.proto). Those files say what each call does; the rest is generated from them.
package imrpc
