package main

import (
	"path"
	"slices"
)

// target is a package whose tests are tried.
type target struct {
	// pkg is the folder in the module.
	pkg string
	// files are the files to change, all if there are none; but are the exceptions, as patterns.
	files, but []string
	// without are tests that are not run: they start programs that were built before, and cannot see a
	// mutant.
	without []string
	// first is how many mutants no test noticed when all were tried for the first time; 0: they were
	// not yet, so there are no lists.
	first int
}

func (t target) wanted(file string) bool {
	matches := func(patterns []string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { ok, _ := path.Match(p, file); return ok })
	}
	return (len(t.files) == 0 || matches(t.files)) && !matches(t.but)
}

func (t target) leftOut(test string) bool { return slices.Contains(t.without, test) }

// targets are the packages that decide, without I/O of their own, or with little.
var targets = []target{
	{pkg: "controlplane/schedule", first: 202},
	{pkg: "controlplane/attachment"},
	{pkg: "controlplane/engine", files: []string{"decide.go"}},
	{pkg: "controlplane/engineimage", files: []string{"decide.go"}},
	{pkg: "controlplane/instancemanager", files: []string{"decide.go", "budget.go", "drain.go", "legacy.go", "network.go",
		"secured.go", "settings.go", "starts.go", "state.go", "versions.go"}},
	{pkg: "controlplane/node", files: []string{"decide.go", "agent_decide.go", "conditions.go", "evict.go"}},
	{pkg: "controlplane/replica", files: []string{"decide.go"}},
	{pkg: "controlplane/settingsync", files: []string{"decide.go"}},
	{pkg: "controlplane/volume", but: []string{"gather.go", "volume.go"}},
	{pkg: "controlplane/instance", files: []string{"step.go", "instance.go"}},
	{pkg: "controlplane/admission", but: []string{"server.go"}, first: 699},
	{pkg: "dataplane/quorum"},
	{pkg: "dataplane/rebuild"},
	{pkg: "rest", files: []string{"attach.go", "backingimage.go", "backup.go", "backuptarget.go", "image.go",
		"instancemanager.go", "kind.go", "node.go", "recurringjob.go", "room.go", "setting.go", "system.go", "view.go",
		"volume.go", "volume_actions.go", "volume_jobs.go", "volume_updates.go", "volume_view.go"}},
	{pkg: "rest/resource"},
	{pkg: "instancemanager/process", files: []string{"ports.go", "probe.go", "process.go", "replace.go", "spec.go",
		"stop.go", "manager.go"}},
	{pkg: "instancemanager/witness", files: []string{"relay.go"}},
	{pkg: "instancemanager/keeper"},
	{pkg: "controlplane/witness"},
}
