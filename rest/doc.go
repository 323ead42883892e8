// Package rest puts together the /v1 API: the HTTP interface that the UI, the CLI, CSI and scripts
// talk to. Package serve is its server, a package for each theme has the handlers, and the rights
// that callers need are here, in one table.
//
// The API is a thin view of the objects in Kubernetes. A read lists the objects it needs (from a
// cache when the caller has one), joins engines, replicas and the attachment to their volume and
// converts the result to the shapes of package resource. A write changes one object through the API
// server, where the admission webhooks judge it; nothing is kept here, so every manager may serve
// every request.
package rest
