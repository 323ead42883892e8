package csi

import (
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// sanityVariable names the folder of built tools, else bin/tools at the top of the module is taken.
const sanityVariable = "ANKOLE_TOOLS"

// skipped are cases of the suite that may be skipped, and why.
var skipped = []struct{ name, why string }{
	{"more volumes than the node max attach limit", "a node has no such limit"},
	{"already published but is incompatible", "read-only is done on the node (PUBLISH_READONLY is not offered)"},
	{"GroupController", "groups of snapshots are not offered"},
	{"VolumeGroupSnapshot", "groups of snapshots are not offered"},
	{"VolumeHealth", "CSI 1.13 only; kubelets read the volume condition of 1.12, which the driver tells"},
	{"StorageHealth", "CSI 1.13 only"},
	{"accessibility requirements",
		"a snapshot is where its volume is (SNAPSHOT_ACCESSIBILITY_CONSTRAINTS is not offered)"},
	{"pagination should detect volumes added between pages", "disabled in the suite itself; TestPages has the case"},
}

// report is what the suite writes about its run.
type report struct {
	Suites []struct {
		Cases []struct {
			Name    string    `xml:"name,attr"`
			Status  string    `xml:"status,attr"`
			Skipped *struct{} `xml:"skipped"`
			Failure *struct {
				Message string `xml:"message,attr"`
			} `xml:"failure"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

// TestSanity runs the sanity suite of the CSI project: the whole of it for file systems, and for
// block volumes.
func TestSanity(t *testing.T) {
	t.Parallel()
	suite := filepath.Join(os.Getenv(sanityVariable), "csi-sanity")
	if os.Getenv(sanityVariable) == "" {
		suite = "../../bin/tools/csi-sanity"
	}
	if _, err := os.Stat(suite); err != nil {
		t.Fatalf("the suite is not built: go -C tools build -o ../bin/tools/ "+
			"github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity: %v", err)
	}
	b := newBed(t)
	d := b.start(t, 1, "")
	for name, text := range map[string]string{
		"parameters": "numberOfReplicas: \"2\"\n", "snapshots": "type: snap\n", "mutable": "replicaAutoBalance: disabled\n"} {
		if err := os.WriteFile(filepath.Join(b.dir, name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []string{"mount", "block"} {
		t.Run(kind, func(t *testing.T) {
			out := filepath.Join(b.dir, kind+".xml")
			at := func(name string) string { return filepath.Join(b.dir, name) }
			cmd := exec.Command(suite, "-csi.endpoint", d.socket, "-csi.mountdir", at(kind+"-target"), "-csi.stagingdir",
				at(kind+"-staging"), "-csi.testvolumeaccesstype", kind, "-csi.testvolumesize", "67108864",
				"-csi.testvolumeexpandsize", "134217728", "-csi.testvolumeparameters", at("parameters.yaml"),
				"-csi.testvolumemutableparameters", at("mutable.yaml"), "-csi.testsnapshotparameters", at("snapshots.yaml"),
				"-ginkgo.junit-report", out, "-ginkgo.no-color")
			text, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v: %s", err, text[max(0, len(text)-8000):])
			}
			judge(t, out)
		})
	}
}

// judge reads the report: no case may have failed, and none been skipped without a reason here.
func judge(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := xml.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	passed, left := 0, 0
	kind := regexp.MustCompile(`^\[It\] `)
	for _, s := range r.Suites {
		for _, c := range s.Cases {
			switch {
			case !kind.MatchString(c.Name):
			case c.Failure != nil:
				t.Errorf("%s: %s", c.Name, c.Failure.Message)
			case c.Status == "skipped" || c.Status == "pending" || c.Skipped != nil:
				left++
				if why := reason(c.Name); why == "" {
					t.Errorf("%s was skipped, and nothing here says why", c.Name)
				} else {
					t.Logf("skipped: %s: %s", c.Name, why)
				}
			default:
				passed++
			}
		}
	}
	t.Logf("%d cases passed, %d were skipped", passed, left)
	if passed < 60 {
		t.Errorf("only %d cases have passed: did the suite run?", passed)
	}
}

func reason(name string) string {
	for _, s := range skipped {
		if strings.Contains(name, s.name) {
			return s.why
		}
	}
	return ""
}
