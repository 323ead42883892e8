// Package resource holds the declared shapes of the /v1 API: every type that its schema document
// names, as one Go struct each, and the table that ties a struct to its schema id, its methods and
// its actions.
//
// The structs are the single table the API is driven from. The server fills them, the client
// package decodes into them, and the schema document is derived from their tags by reflection, so a
// field that is served but not declared (or the reverse) cannot exist.
//
// Tags of a field:
//
//	json     name on the wire
//	api      comma list of create, update, required, unique, nullable
//	default  default shown in the schema document, read in the field's own kind
//	schema   type string, where it differs from the one the Go type would give
//
// The flags and defaults inform clients; the server does not enforce them. Byte sizes are decimal
// strings in volumes, controllers, snapshots and backups, and numbers everywhere else. Times are
// RFC 3339 text unless the field says otherwise.
//
// The package imports nothing but the standard library, so that clients stay small.
package resource
