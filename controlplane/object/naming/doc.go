// Package naming derives the name of everything the control plane creates, and holds the fixed
// words that clients look for: labels, annotations, ports, paths, event reasons.
//
// Names are how objects find each other, so they are functions of what they belong to and nothing
// else. The exceptions carry a random suffix, which the caller gets from RandomSuffix once and
// stores in the object. All functions are pure; those that shorten by a hash name the hash, because
// other programs compute the same names.
package naming
