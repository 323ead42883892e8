// Package proxy drives the engine proxy as its clients do: a real instance manager with real
// engines and replicas, asked over the network by a client that is made from the tables of the
// reference's methods, messages and field numbers and shares no generated code with the server. It
// also treats the proxy badly.
package proxy
