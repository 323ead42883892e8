// Package volume answers requests of the /v1 API about volumes and what is a part of them: their
// engines, replicas and attachment, which are joined to one view, their snapshots, claims and
// recurring jobs.
//
// An action changes what is wanted, in one object, and returns before the controllers have done
// it; what an engine does at once, as with snapshots, it is asked for (Snapshots). List and stream
// of all volumes are encoded once for everybody (cache.go).
package volume
