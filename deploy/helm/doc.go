// Package helm runs the chart through Helm itself. It is a module of its own, since it pins the two
// versions of Helm that are in use, whose modules nothing else needs.
package helm
