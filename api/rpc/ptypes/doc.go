// Package ptypes has the messages of the reference's engine API that its proxy service passes on: a
// volume and its replicas as an engine sees them, and the progress of long operations. engine.proto
// is the source, the rest is generated from it.
package ptypes
