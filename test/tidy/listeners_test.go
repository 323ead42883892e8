package tidy

import (
	"go/ast"
	"strings"
	"testing"
)

// listenExceptions listen without package listener.
var listenExceptions = exceptions{
	"standalone/node/server.go":                    "an HTTP server waits out a lack of descriptors itself",
	"standalone/statedir/statedir.go":              "looks whether a port is free",
	"instancemanager/instancetest/instancetest.go": "plays instances in tests",
}

// TestListeners: programs listen by package listener, whose Accept ends with the listener only.
func TestListeners(t *testing.T) {
	t.Parallel()
	r := newRule(t,
		"a connection that cannot be accepted for want of descriptors or memory ends a server that takes this for "+
			"the end of its listener, and with it the process and all its volumes", listenExceptions)
	for _, s := range sources(t) {
		if s.test || s.dir() == "host/listener" || strings.HasPrefix(s.name, "test/") {
			continue
		}
		listens(s.ast, func(n ast.Node, what string) { r.broken(s.name, "%s: %s", s.at(n), what) })
	}
}

// listens finds where a file opens a listener of package net.
func listens(f *ast.File, found func(n ast.Node, what string)) {
	ast.Inspect(f, func(n ast.Node) bool {
		name, ok := selector(n, "net")
		if ok && (name == "FileListener" || strings.HasPrefix(name, "Listen") && name != "Listener") {
			found(n, "uses net."+name)
		}
		return true
	})
}
