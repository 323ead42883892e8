package cli

import (
	"strings"
	"testing"
)

// TestNodeSetCPU: the request is set and nothing else of the node; bad input changes nothing.
func TestNodeSetCPU(t *testing.T) {
	b := newBed(t, cluster()...)
	if r := b.run("node", "set-cpu", "node-1", "250m"); r.status != 0 ||
		!strings.Contains(r.out, "the instance manager of node node-1 requests 250m, from when") {
		t.Fatalf("%+v", r)
	}
	get := func() string { return b.run("node", "get", "node-1", "-o", "json").out }
	if shown := get(); !strings.Contains(shown, `"instanceManagerCPURequest": 250`) ||
		!strings.Contains(shown, `"allowScheduling": true`) {
		t.Errorf("%s", shown)
	}
	for value, want := range map[string]string{"much": `CPU request "much"`, "-1": "", "0.5": "whole number", "": "whole number"} {
		if r := b.run("node", "set-cpu", "node-1", value); r.status == 0 || !strings.Contains(r.err, want) {
			t.Errorf("%q: %+v", value, r)
		}
	}
	if r := b.run("node", "set-cpu", "nowhere", "1"); r.status == 0 || !strings.Contains(r.err, "nowhere") {
		t.Errorf("%+v", r)
	}
	if shown := get(); !strings.Contains(shown, `"instanceManagerCPURequest": 250`) {
		t.Errorf("after bad input: %s", shown)
	}
	for kind, field := range map[string]string{"engine": "engineManagerCPURequest",
		"replica": "replicaManagerCPURequest"} {
		r := b.run("node", "set-cpu", "node-1", "70", "--type", kind)
		if r.status != 0 || !strings.Contains(r.out, "the instance manager of type "+kind+" of node node-1 requests 70m") ||
			!strings.Contains(get(), `"`+field+`": 70`) || !strings.Contains(get(), `"instanceManagerCPURequest": 250`) {
			t.Errorf("%s: %+v", kind, r)
		}
		r = b.run("node", "set-cpu", "node-1", "0", "--type", kind)
		if r.status != 0 || !strings.Contains(r.out, "the share of setting guaranteed-"+kind+"-manager-cpu") {
			t.Errorf("%s: %+v", kind, r)
		}
	}
	if r := b.run("node", "set-cpu", "node-1", "0"); r.status != 0 || !strings.Contains(r.out,
		"the share of setting guaranteed-instance-manager-cpu") {
		t.Errorf("%+v", r)
	}
}

// TestDeprecatedSettingsAreNotListed: nothing follows them; who asks for one, or for all in a form
// for programs, gets it.
func TestDeprecatedSettingsAreNotListed(t *testing.T) {
	b := newBed(t, cluster()...)
	const name = "guaranteed-engine-cpu"
	if r := b.run("setting", "list"); r.status != 0 || strings.Contains(r.out, name) ||
		!strings.Contains(r.out, "guaranteed-engine-manager-cpu") {
		t.Errorf("%+v", r)
	}
	for _, args := range [][]string{{"setting", "list", "-o", "json"}, {"setting", "get", name}} {
		if r := b.run(args...); r.status != 0 || !strings.Contains(r.out, name) {
			t.Errorf("%v: %+v", args, r)
		}
	}
}
