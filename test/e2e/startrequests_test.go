package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// audit makes the API server write one line for each request, and returns the flags for that and
// the file.
func audit(t *testing.T) (args []string, file string) {
	t.Helper()
	dir := t.TempDir()
	policy, file := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	text := "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: Metadata\n"
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--kube-apiserver-arg=--audit-policy-file=" + policy, "--kube-apiserver-arg=--audit-log-path=" + file},
		file
}

// audited is a line of that file.
type audited struct {
	Received time.Time `json:"requestReceivedTimestamp"`
	Ended    time.Time `json:"stageTimestamp"`
	URI      string    `json:"requestURI"`
	Verb     string    `json:"verb"`
	Agent    string    `json:"userAgent"`
	Response struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// testStartWaitsForNothing: the kinds of objects are defined, and served, before the managers of a
// fresh cluster ask for them. Else the API server holds the first objects back for two seconds, and
// sends lists and watches away for one.
func testStartWaitsForNothing(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var settings []audited
	for line := range strings.Lines(string(text)) {
		var r audited
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			continue // the last one, which is being written
		}
		if !strings.HasPrefix(r.Agent, "manager/") || !strings.HasPrefix(r.URI, "/apis/longhorn.io/") {
			continue
		}
		if r.Response.Code == 429 {
			t.Errorf("%s %s was sent away", r.Verb, r.URI)
		}
		if r.Verb == "create" && strings.HasSuffix(r.URI, "/settings") {
			settings = append(settings, r)
		}
	}
	if len(settings) == 0 {
		t.Fatal("no setting was made")
	}
	slices.SortFunc(settings, func(a, b audited) int { return a.Received.Compare(b.Received) })
	if took := settings[0].Ended.Sub(settings[0].Received); took >= 2*time.Second {
		t.Errorf("the first setting was held back for %v", took)
	}
}
