// Package rest serves the /v1 API: the HTTP interface that the UI, the CLI, CSI and scripts talk
// to.
//
// The API is a thin view of the objects in Kubernetes. A read lists the objects it needs (from a
// cache when the caller has one), joins engines, replicas and the attachment to their volume and
// converts the result to the shapes of package resource. A write changes one object through the API
// server, where the admission webhooks judge it; nothing is kept here, so every manager may serve
// every request.
//
// Three conventions shape the code:
//
//   - Everything that works answers 200, everything refused 500 with an error object, and only what
//     is missing answers
//     404. Clients match texts, not codes, so the wording of some messages is part of the
//     interface.
//   - Objects say which actions they accept now. An operation that is not built yet is offered by
//     none, and refused with what is missing (later.go).
//   - Links are absolute and are built from the request, so that the API works behind proxies that
//     add a prefix.
package rest
