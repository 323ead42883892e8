// Package witnessv1 is how an engine asks who belongs to its volume: the Witness service on a
// socket of the instance manager, and the relay by which managers answer. witness.proto says what
// each call does; the rest is generated from it.
package witnessv1
