package tidy

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxDirect bounds the modules that the main module uses by itself, tests included.
const maxDirect = 44

// licence recognises a licence by its text.
type licence struct {
	name string
	has  []*regexp.Regexp
}

func text(patterns ...string) []*regexp.Regexp {
	var all []*regexp.Regexp
	for _, p := range patterns {
		all = append(all, regexp.MustCompile(`(?is)`+strings.ReplaceAll(p, " ", `[\s*#/]+`)))
	}
	return all
}

// licences that a dependency may have. They go together with Apache-2.0 in a program that is passed
// on.
var licences = []licence{
	{"Apache-2.0", text(`Apache License`, `Version 2\.0`)},
	{"MPL-2.0", text(`Mozilla Public License,? version 2\.0`)},
	{"BSD-3-Clause", text(`Redistribution and use in source and binary forms`, `Neither the names? of`)},
	{"BSD-2-Clause", text(`Redistribution and use in source and binary forms`)},
	{"MIT", text(`Permission is hereby granted, free of charge, to any person`)},
	{"ISC", text(`Permission to use, copy, modify,? and(/or)? distribute this software`)},
	{"CC0-1.0", text(`Creative Commons CC0 1\.0 Universal`)},
	{"Unlicense", text(`This is free and unencumbered software released into the public domain`)},
}

// licenceOf reads the licence of a module in the module cache.
func licenceOf(dir string) string {
	for _, pattern := range []string{"LICEN[SC]E*", "License*", "licen[sc]e*", "COPYING*", "UNLICENSE*"} {
		names, _ := filepath.Glob(filepath.Join(dir, pattern)) // the pattern is well formed
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				continue
			}
			for _, l := range licences {
				if !slices.ContainsFunc(l.has, func(r *regexp.Regexp) bool { return !r.Match(data) }) {
					return l.name
				}
			}
		}
	}
	return ""
}

// modules returns the modules of a graph, by path.
func modules(packages map[string]*pkg) map[string]string {
	found := map[string]string{}
	for _, p := range packages {
		if p.Module != nil && !strings.HasPrefix(p.Module.Path, module) {
			found[p.Module.Path] = p.Module.Dir
		}
	}
	return found
}

func TestLicences(t *testing.T) {
	t.Parallel()
	r := newRule(t, "everything linked into a program must come under a licence that lets us pass it on", exceptions{})
	checked := 0
	for _, g := range []func() (map[string]*pkg, error){mainTestGraph, standaloneGraph} {
		for name, dir := range modules(graph(t, g)) {
			checked++
			if dir == "" || licenceOf(dir) == "" {
				r.broken(name, "%s: no licence in %q that is known here; read it, and decide", name, dir)
			}
		}
	}
	t.Logf("%d modules", checked)
	if checked < 20 {
		t.Errorf("found only %d modules: is this test looking in the right place?", checked)
	}
}

// TestDirectDependencies compares docs/design/dependencies.md with what the code imports.
func TestDirectDependencies(t *testing.T) {
	t.Parallel()
	packages := graph(t, mainTestGraph)
	direct := map[string]string{}
	for _, p := range packages {
		if p.Module == nil || !p.Module.Main {
			continue
		}
		for _, imp := range p.Imports {
			if q := packages[imp]; q != nil && q.Module != nil && !q.Module.Main {
				direct[q.Module.Path] = licenceOf(q.Module.Dir)
			}
		}
	}
	if len(direct) >= maxDirect {
		t.Errorf("%d modules are imported, %d or more: which of them does nothing a library does well?", len(direct),
			maxDirect)
	}
	row := regexp.MustCompile("^\\| `([^`]+)` \\| ([^ ]+) \\| (.+) \\|$")
	listed := map[string]string{}
	for line := range strings.Lines(read(t, "docs/design/dependencies.md")) {
		if m := row.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			listed[m[1]] = m[2]
		}
	}
	for _, name := range slices.Sorted(maps.Keys(direct)) {
		if listed[name] != direct[name] {
			t.Errorf("docs/design/dependencies.md: want a row | `%s` | %s | what for |, licence there is %q", name,
				direct[name], listed[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		if _, ok := direct[name]; !ok {
			t.Errorf("docs/design/dependencies.md lists %s, which nothing imports any more", name)
		}
	}
}
