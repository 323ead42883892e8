// Package serving runs the admission webhooks' HTTPS server and tells the API server about it.
//
// Trust is self-made: the first manager writes a certificate authority into Secret
// longhorn-webhook-ca and a server certificate into longhorn-webhook-tls; the others use what they
// find. A certificate that lacks one of this manager's names, or ends soon, is issued anew from the
// same authority, so that the API server's trust (the authority) changes at most when the authority
// itself is about to end.
package serving
