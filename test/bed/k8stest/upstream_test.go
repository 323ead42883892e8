package k8stest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2/types"

	"ankole.storage/test/lack"
)

const (
	upstreamData = "testdata/upstream"
	// upstreamPrefix is how the name of every case begins.
	upstreamPrefix = "External Storage [Driver: driver.longhorn.io] "
	// upstreamLeftOut are the cases that take long or want the cluster for themselves; a long hunt has
	// them too.
	upstreamLeftOut = `\[Slow\]|\[Serial\]|\[Disruptive\]`
	// withSELinux are the cases that need a kernel with SELinux, and fail without; noSELinux is why
	// the table leaves them out. The suite itself does not look.
	withSELinux = `\[Feature:SELinux\]`
	noSELinux   = "the kernel has no SELinux"
)

// TestUpstream runs Kubernetes' own tests of storage drivers, and compares what became of each case
// with testdata/upstream/cases.txt. Topology and storage capacity have a pass of their own: a suite
// that knows of topologies leaves out others.
//
// FOCUS is a pattern of cases, PROCS how many run at once. CASES names a file to which the table of
// cases is written as it is.
func TestUpstream(t *testing.T) {
	b := start(t, "busybox", "nginx", "glibc-dns-testing", "agnhost", "hello-populator", "pause")
	b.kubectlOK("apply", "--server-side", "-f", filepath.Join(filepath.Dir(b.program), "addons", "snapshots"))
	b.kubectlOK("label", "node", "node-1", "node-2", "topology.kubernetes.io/zone=one")
	b.kubectlOK("label", "node", "node-3", "topology.kubernetes.io/zone=other")
	newHelm(b).ok("install", "longhorn", chart, "--namespace", namespace, "--create-namespace", "--set",
		"storageCapacity=true,defaultSettings.csi-allowed-topology-keys=topology.kubernetes.io/zone")
	b.installed()
	b.kubectlOK("apply", "-f", filepath.Join(upstreamData, "classes.yaml"))
	b.apply(upstreamClass(t))
	head, want := readCases(t)
	_, err := os.Stat("/sys/fs/selinux")
	u := &upstream{bed: b, head: head, want: want, selinux: err == nil, got: map[string]verdict{}, all: map[string]bool{}}
	u.run("driver.yaml", "")
	u.run("topology.yaml", `\] (topology|capacity) `)
	u.compare()
	if !t.Failed() { // a case that fails may leave something
		b.nothingLeft()
	}
}

// upstreamClass is the class of volumes. Its file system is one that can grow here while it is
// mounted, as growing says; cases that name one get that.
func upstreamClass(t *testing.T) string {
	class := `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: upstream}
provisioner: driver.longhorn.io
allowVolumeExpansion: true
parameters: {numberOfReplicas: "3"`
	if !lack.GrowingExt4(t) {
		class += ", csi.storage.k8s.io/fstype: xfs"
	}
	return class + "}\n"
}

// upstream is a run of the suite.
type upstream struct {
	*bed
	head      string // comment of the table
	want, got map[string]verdict
	selinux   bool            // the kernel has it
	all       map[string]bool // the names of all cases, run or not
	failed    int             // cases that failed
}

// verdict is what became of a case.
type verdict struct {
	result string // pass, skip or FAIL; in the table open, where no run has come to its end yet
	reason string // of skip, as the suite gives it
}

// run runs the cases of a pattern with a definition of the driver.
func (u *upstream) run(driver, pattern string) {
	u.t.Helper()
	programs := filepath.Join(filepath.Dir(u.program), "upstream")
	definition, err := filepath.Abs(filepath.Join(upstreamData, driver))
	if err != nil {
		u.t.Fatal(err)
	}
	log, report := u.Path(driver+".log"), u.Path(driver+".json")
	// The program has other cases too, which come with what it imports.
	args := []string{"run", "--procs", cmp.Or(os.Getenv("PROCS"), "4"), "--no-color", "--silence-skips",
		"--timeout", u.limit().String(), "--output-dir", u.Dir, "--json-report", filepath.Base(report),
		"--focus", regexp.QuoteMeta(upstreamPrefix) + ".*" + pattern + ".*(" + os.Getenv("FOCUS") + ")"}
	if !u.selinux {
		args = append(args, "--skip", withSELinux)
	}
	if os.Getenv("SIZE") != "night" {
		args = append(args, "--skip", upstreamLeftOut)
	}
	args = append(args, filepath.Join(programs, "upstream.test"), "--", "-kubeconfig", u.Path("kubeconfig"),
		"-provider", "skeleton", "-storage.testdriver", definition)
	out, err := os.Create(log)
	if err != nil {
		u.t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(filepath.Join(programs, "ginkgo"), args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	began := time.Now()
	failed := cmd.Run()
	u.took("the suite with "+driver, began)
	text, err := os.ReadFile(report)
	if err != nil {
		said, _ := os.ReadFile(log)
		u.t.Fatalf("no report: %v, %v\n%s", err, failed, said[max(0, len(said)-logTail):])
	}
	before := u.failed
	u.read(text)
	if failed != nil && u.failed == before { // interrupted, or out of time: what was not begun counts for nothing
		u.t.Errorf("the suite with %s: %v; see its log", driver, failed)
	}
}

// limit is when a run is ended, so that there is a report and time to take the cluster down.
func (u *upstream) limit() time.Duration {
	const ending = 4 * time.Minute
	deadline, ok := u.t.Deadline()
	if !ok {
		return time.Hour
	}
	return max(time.Until(deadline)-ending, time.Second)
}

// read takes what became of the cases from a report.
func (u *upstream) read(text []byte) {
	u.t.Helper()
	var reports []types.Report
	if err := json.Unmarshal(text, &reports); err != nil {
		u.t.Fatal(err)
	}
	for _, r := range reports {
		for _, reason := range r.SpecialSuiteFailureReasons {
			u.t.Errorf("the suite: %s", reason)
		}
		for _, s := range r.SpecReports {
			name, ours := strings.CutPrefix(s.FullText(), upstreamPrefix)
			if s.LeafNodeType != types.NodeTypeIt || !ours {
				if s.Failed() {
					u.t.Errorf("%s failed: %s", s.LeafNodeType, s.Failure.Message)
				}
				continue
			}
			name = oneSpace(name)
			u.all[name] = true
			v, ran := outcome(s)
			if was := u.want[name]; !ran && !u.selinux && strings.Contains(name, "[Feature:SELinux]") &&
				(was.result == "open" || was.reason == noSELinux) { // others are skipped anyway, or pass without
				v, ran = verdict{"skip", noSELinux}, true
			}
			if ran {
				u.got[name] = v
			}
			if s.Failed() {
				u.failed++
				said := s.CapturedGinkgoWriterOutput
				u.t.Errorf("%s: failed after %s, at %s: %s\n%s", name, s.RunTime.Round(time.Second), s.Failure.Location,
					s.Failure.Message, said[max(0, len(said)-2*logTail):])
			}
		}
	}
}

// compare holds what became of the cases against the table.
func (u *upstream) compare() {
	u.t.Helper()
	count := map[string]int{}
	for name := range u.all {
		want, known := u.want[name]
		if !known {
			u.t.Errorf("cases.txt does not have %s", name)
		}
		got, ran := u.got[name]
		if ran && got.result != "FAIL" && known && want.result != "open" && want.reason != noSELinux && got != want {
			u.t.Errorf("%s: %s %s, in cases.txt %s %s", name, got.result, got.reason, want.result, want.reason)
		}
		count[cmp.Or(got.result, "left out")]++
	}
	for name := range u.want {
		if !u.all[name] {
			u.t.Errorf("cases.txt has %s, which the suite does not have", name)
		}
	}
	u.t.Logf("of %d cases: %v", len(u.all), count)
	if len(u.got) == 0 {
		u.t.Errorf("FOCUS=%s chooses no case", os.Getenv("FOCUS"))
	}
	if file := os.Getenv("CASES"); file != "" {
		u.write(file)
	}
}

// outcome is what became of a case, and whether it was begun: one that no flag chose has no reason.
func outcome(s types.SpecReport) (v verdict, ran bool) {
	switch {
	case s.State.Is(types.SpecStatePassed):
		return verdict{result: "pass"}, true
	case s.State.Is(types.SpecStateSkipped | types.SpecStatePending):
		return verdict{"skip", reason(s.Failure.Message)}, s.Failure.Message != ""
	default:
		return verdict{result: "FAIL"}, true
	}
}

// trailer is what follows the reason of a skip; errors that the suite quotes name paths of the
// machine.
var trailer = regexp.MustCompile(`(\s*-+ skipping|\.|: '.*)$`)

// reason is why a case was skipped, in the suite's words.
func reason(message string) string {
	first, _, _ := strings.Cut(message, "\n")
	return trailer.ReplaceAllString(first, "")
}

// readCases reads the table: comments, then result, name, and the reason of a skip, separated by
// tabs.
func readCases(t *testing.T) (head string, cases map[string]verdict) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(upstreamData, "cases.txt"))
	if err != nil {
		t.Fatal(err)
	}
	cases = map[string]verdict{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			head += line
			continue
		}
		f := append(strings.Split(strings.TrimSpace(line), "\t"), "", "")
		cases[oneSpace(f[1])] = verdict{f[0], f[2]}
	}
	return head, cases
}

// oneSpace is a name as the table has it: how parts of names are joined differs by version of the
// suite.
func oneSpace(name string) string { return strings.Join(strings.Fields(name), " ") }

// write writes the table as it is after this run.
func (u *upstream) write(file string) {
	u.t.Helper()
	var out strings.Builder
	out.WriteString(u.head)
	for _, name := range slices.Sorted(maps.Keys(u.all)) {
		v, ran := u.got[name]
		if !ran {
			v = cmp.Or(u.want[name], verdict{result: "open"})
		}
		fmt.Fprintln(&out, strings.TrimRight(v.result+"\t"+name+"\t"+v.reason, "\t"))
	}
	if err := os.WriteFile(file, []byte(out.String()), 0o600); err != nil {
		u.t.Fatal(err)
	}
}

// nothingLeft: the suite removes what it makes, so that the managers have no volume any more.
func (b *bed) nothingLeft() {
	b.t.Helper()
	b.reach()
	b.await("no volume is left", func(ctx context.Context) error {
		list, err := b.rest.Volumes(ctx)
		if err == nil && len(list) > 0 {
			err = fmt.Errorf("%d are, the first is %s", len(list), list[0].Name)
		}
		return err
	})
}

// TestReason: what the table says of a skip is the same on every machine.
func TestReason(t *testing.T) {
	for message, want := range map[string]string{
		`Driver "d" does not support topology - skipping`:                    `Driver "d" does not support topology`,
		"Driver d doesn't support ntfs -- skipping\n\nmore":                  "Driver d doesn't support ntfs",
		"No SSH Key for provider skeleton: 'error reading key /srv/id'":      "No SSH Key for provider skeleton",
		`Suite "volumeLimits" does not support GenericEphemeralVolume`:       `Suite "volumeLimits" does not support GenericEphemeralVolume`,
		"VolumeBindingMode immediate is not compatible with an environment.": "VolumeBindingMode immediate is not compatible with an environment",
	} {
		if got := reason(message); got != want {
			t.Errorf("%q: %q, want %q", message, got, want)
		}
	}
}
