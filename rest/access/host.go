package access

import (
	"net"
	"slices"
	"strings"

	"ankole.storage/controlplane/object/naming"
)

// AnyHost in a list of names stands for every name.
const AnyHost = "*"

// KnownHost tells whether a Host header names this server: an address, localhost, a Service of the
// namespace, or one of names.
//
// A page of a foreign site can make a browser send requests to a server that the browser reaches
// and the site's owner does not, by letting the site's name resolve to that server's address. Such
// requests look like those of the server's own pages, and differ only in the Host header: it has
// the foreign name. No page can have an address or localhost as the name of its site unless it
// comes from there.
func KnownHost(host, namespace string, names []string) bool {
	bare := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		bare = h
	}
	bare = strings.ToLower(strings.TrimSuffix(strings.Trim(bare, "[]"), "."))
	address, _, _ := strings.Cut(bare, "%")
	switch {
	case bare == "": // HTTP/1.0; browsers always name a host
		return true
	case net.ParseIP(address) != nil, bare == "localhost", strings.HasSuffix(bare, ".localhost"):
		return true
	}
	for _, service := range []string{naming.ServiceBackend, naming.ServiceFrontend} {
		full := service + "." + namespace + ".svc.cluster.local"
		for _, known := range []string{service, service + "." + namespace, service + "." + namespace + ".svc", full} {
			if bare == known {
				return true
			}
		}
	}
	return slices.ContainsFunc(names, func(n string) bool { return n == AnyHost || strings.EqualFold(n, bare) })
}
