// Package v1beta2 holds the kinds in which the cluster keeps its state: API group longhorn.io, version v1beta2.
//
// A user orders a Volume. The control plane makes one Engine and several Replica objects for it, each run as a process
// by the InstanceManager of a Node, from the binary of an EngineImage. Who wants a volume attached, and where, is
// written as tickets into its VolumeAttachment. Setting holds what holds for the whole cluster. The other kinds are
// about snapshots, backups, backing images, shares and housekeeping.
//
// Rules that hold for every kind:
//
//   - spec is what is wanted, status is what was observed; they are written separately (subresource status).
//   - 64-bit numbers that the schema types as string (sizes mostly) travel as JSON strings; in Go they are int64.
//     Turn objects into unstructured ones through JSON: runtime.DefaultUnstructuredConverter does not know the tag for
//     this and writes numbers, which the API server refuses.
//   - Maps and lists whose schema forbids null are left out when nil and written when empty; nullable ones are written
//     as null when nil. Enumerations that forbid the empty string are left out when empty, so that a server default or
//     a webhook can fill them.
//   - Legacy… structs hold fields that only old clients and old instance managers use.
//
// The deep copies and the CRDs in folder crd are generated (tools/generate.sh).
//
// +kubebuilder:object:generate=true
// +groupName=longhorn.io
package v1beta2
