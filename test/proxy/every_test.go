package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"ankole.storage/dataplane/frontend/nbd/nbdclient"
	"ankole.storage/test/wait"
)

// callTimeout bounds one call of the tests.
const callTimeout = time.Minute

// must makes a call that has to succeed. The request's further fields are added to those that name
// the engine.
func (v *volume) must(method string, further ...string) map[string]any {
	v.n.t.Helper()
	a, err := v.try(method, further...)
	if err != nil {
		v.n.t.Fatalf("%s: %v", method, err)
	}
	return a
}

func (v *volume) try(method string, further ...string) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	return v.n.out.call(ctx, method, v.request(further...))
}

// refused makes a call that has to fail with a code and a text.
func (v *volume) refused(method string, want codes.Code, says string, further ...string) {
	v.n.t.Helper()
	_, err := v.try(method, further...)
	if status.Code(err) != want || !strings.Contains(status.Convert(err).Message(), says) {
		v.n.t.Errorf("%s: %v, want %s and %q", method, err, want, says)
	}
}

// at follows keys into an answer.
func at(v any, path ...string) any {
	for _, key := range path {
		m, _ := v.(map[string]any)
		v = m[key]
	}
	return v
}

// param is a field of a request in JSON.
func param(name string, value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("%q: %s", name, text)
}

// write writes one MiB that depends on fill, over the volume's socket.
func (v *volume) write(off int64, fill byte) {
	v.n.t.Helper()
	c, err := nbdclient.Dial(context.Background(), "unix:"+v.socket(), nbdclient.Options{Export: v.name})
	if err != nil {
		v.n.t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.WriteAt(bytes.Repeat([]byte{fill}, mib), off); err != nil {
		v.n.t.Fatal(err)
	}
	if err := c.Flush(); err != nil {
		v.n.t.Fatal(err)
	}
}

func (v *volume) read(off int64) byte {
	v.n.t.Helper()
	c, err := nbdclient.Dial(context.Background(), "unix:"+v.socket(), nbdclient.Options{Export: v.name})
	if err != nil {
		v.n.t.Fatal(err)
	}
	defer c.Close()
	p := make([]byte, 4096)
	if _, err := c.ReadAt(p, off); err != nil {
		v.n.t.Fatal(err)
	}
	return p[100]
}

// TestC1 drives every method of the proxy service as the reference's clients do, and fails if one
// is left out.
func TestC1(t *testing.T) {
	n := start(t, "nbd-unix")
	v := n.volume("one", 16*mib, 2)
	for _, step := range []struct {
		name string
		run  func(t *testing.T, v *volume)
	}{
		{"volume", volumeMethods}, {"snapshots", snapshotMethods}, {"checksums", hashMethods}, {"clone", cloneMethods},
		{"backup", backupMethods},
		{"purge", purgeMethods},
		{"replicas", replicaMethods}, {"metrics", metricsMethods}, {"not here", unimplemented},
	} {
		t.Run(step.name, func(t *testing.T) {
			outer := n.t
			n.t = t
			defer func() { n.t = outer }()
			step.run(t, v)
		})
		if t.Failed() {
			return // what follows builds on it
		}
	}
	for _, m := range n.methods(service) {
		if !n.out.called[m] {
			t.Errorf("%s is not called by this test", m)
		}
	}
}

func volumeMethods(t *testing.T, v *volume) {
	if _, err := v.n.out.call(context.Background(), "Ping", "{}"); err != nil {
		t.Error(err)
	}
	version := at(v.must("ServerVersionGet"), "version").(map[string]any)
	if version["cliAPIVersion"] == "0" || version["dataFormatVersion"] == "0" {
		t.Errorf("version %v", version)
	}
	size := func() any { return at(v.must("VolumeGet"), "volume", "size") }
	v.must("VolumeExpand", param("expand", map[string]any{"size": 32 * mib}))
	if size() != fmt.Sprint(32*mib) {
		t.Errorf("size %v after the expansion", size())
	}
	v.refused("VolumeExpand", codes.InvalidArgument, "", param("expand", map[string]any{"size": 4097}))
	v.must("VolumeUnmapMarkSnapChainRemovedSet", param("unmap_mark_snap", map[string]any{"enabled": true}))
	v.must("VolumeSnapshotMaxCountSet", param("count", map[string]any{"count": 33}))
	v.must("VolumeSnapshotMaxSizeSet", param("size", map[string]any{"size": 1 << 40}))
	got := at(v.must("VolumeGet"), "volume").(map[string]any)
	for key, want := range map[string]any{"name": "one", "replicaCount": 2.0, "frontend": "tgt-blockdev",
		"frontendState": "up", "isExpanding": false,
		"unmap_mark_snap_chain_removed": true, "snapshot_max_count": 33.0, "snapshot_max_size": fmt.Sprint(1 << 40)} {
		if got[key] != want {
			t.Errorf("%s is %v, want %v", key, got[key], want)
		}
	}
	v.refused("VolumeSnapshotMaxCountSet", codes.InvalidArgument, "snapshot-max-count",
		param("count", map[string]any{"count": 1}))
}

func snapshotMethods(t *testing.T, v *volume) {
	for i, name := range []string{"a", "b", "c"} {
		v.write(int64(i)*mib, byte(i+1))
		a := v.must("VolumeSnapshot", param("snapshot_volume",
			map[string]any{"name": name, "labels": map[string]string{"k": name}}))
		if at(a, "snapshot", "name") != name {
			t.Errorf("%v", a)
		}
	}
	v.refused("VolumeSnapshot", codes.AlreadyExists, "a", param("snapshot_volume", map[string]any{"name": "a"}))
	v.write(0, 9)
	disks := at(v.must("SnapshotList"), "disks")
	if at(disks, "b", "parent") != "a" || at(disks, "b", "labels", "k") != "b" || at(disks, "b", "user_created") != true ||
		at(disks, "volume-head", "parent") != "c" || at(disks, "b", "children", "c") != true ||
		at(disks, "a", "size") == "0" {
		t.Errorf("%v", disks)
	}
	v.refused("SnapshotRevert", codes.FailedPrecondition, "frontend", param("name", "a"))
	v.must("VolumeFrontendShutdown")
	if s := at(v.must("VolumeGet"), "volume", "frontendState"); s != "down" {
		t.Errorf("frontend %v", s)
	}
	v.must("SnapshotRevert", param("name", "a"))
	v.must("VolumeFrontendStart", param("frontend_start", map[string]any{"frontend": "tgt-blockdev"}))
	if got := v.read(0); got != 1 {
		t.Errorf("after the revert the volume reads %d", got)
	}
}

func (v *volume) hash(name string, rehash bool) map[string]any {
	v.n.t.Helper()
	v.must("SnapshotHash", param("snapshot_name", name), param("rehash", rehash))
	var all map[string]any
	wait.Until(v.n.t, "checksums of "+name, func() bool {
		all = at(v.must("SnapshotHashStatus", param("snapshot_name", name)), "status").(map[string]any)
		for _, s := range all {
			if at(s, "state") == "in_progress" {
				return false
			}
		}
		return true
	})
	return all
}

func hashMethods(t *testing.T, v *volume) {
	sums := func(all map[string]any) (out []any) {
		t.Helper()
		for address, s := range all {
			if at(s, "state") != "complete" || at(s, "error") != "" || at(s, "silently_corrupted") != false {
				t.Fatalf("%s: %v", address, s)
			}
			if !slices.Contains(out, at(s, "checksum")) {
				out = append(out, at(s, "checksum"))
			}
		}
		if len(all) != 2 || len(out) != 1 || len(out[0].(string)) != 16 {
			t.Fatalf("%v", all)
		}
		return out
	}
	was := sums(v.hash("a", false))
	image := filepath.Join(v.directory(1), "volume-snap-a.img")
	f, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("rot"), 5000); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	// Whoever changes a file changes its time, so the checksum of the file does not hold any more;
	// those of its pieces do.
	if again := sums(v.hash("a", true)); again[0] != was[0] {
		t.Errorf("checksum %v after the repair, was %v", again, was)
	}
	if data, err := os.ReadFile(image); err != nil || bytes.Contains(data, []byte("rot")) {
		t.Errorf("the copy is not repaired (%v)", err)
	}
	v.refused("SnapshotHash", codes.NotFound, "nowhere", param("snapshot_name", "nowhere"))
	v.refused("SnapshotHashStatus", codes.NotFound, "nowhere", param("snapshot_name", "nowhere"))
	v.refused("SnapshotHash", codes.InvalidArgument, "volume-head", param("snapshot_name", "volume-head"))
	// The binary's command line tells the same.
	out, err := exec.Command(filepath.Join(v.n.dir, "bin/test/longhorn"), "--url", v.engine, "--volume-name", v.name,
		"snapshots", "hash-status", "a").CombinedOutput()
	if err != nil || strings.Count(string(out), fmt.Sprintf("%q", was[0])) != 2 {
		t.Errorf("%v: %s", err, out)
	}
}

// cloneMethods fills another volume with a snapshot of this one.
func cloneMethods(t *testing.T, v *volume) {
	w := v.n.volume("two", 32*mib, 1)
	w.must("VolumeFrontendShutdown")
	from := []string{param("snapshot_name", "b"), param("from_engine_address", v.engine),
		param("from_volume_name", v.name), param("from_engine_name", v.engineName())}
	w.must("SnapshotClone", from...)
	all := at(w.must("SnapshotCloneStatus"), "status")
	if s := at(all, w.address[0]); at(s, "is_cloning") != false || at(s, "state") != "complete" ||
		at(s, "progress") != 100.0 || at(s, "snapshot_name") != "b" {
		t.Errorf("%v", all)
	}
	w.must("VolumeFrontendStart", param("frontend_start", map[string]any{"frontend": "tgt-blockdev"}))
	if got := [3]byte{w.read(0), w.read(mib), w.read(2 * mib)}; got != [3]byte{1, 2, 0} {
		t.Errorf("the clone reads %v", got)
	}
	from[2] = param("from_volume_name", "other")
	w.refused("SnapshotClone", codes.FailedPrecondition, "other", from...)
}

func purgeMethods(t *testing.T, v *volume) {
	v.must("SnapshotRemove", param("names", []string{"c"}))
	v.refused("SnapshotRemove", codes.NotFound, "nowhere", param("names", []string{"nowhere"}))
	v.must("SnapshotPurge", param("skip_if_in_progress", true))
	wait.Until(t, "end of the purge", func() bool {
		all := at(v.must("SnapshotPurgeStatus"), "status").(map[string]any)
		for _, s := range all {
			if at(s, "state") == "error" {
				t.Fatal(all)
			}
			if at(s, "is_purging") != false {
				return false
			}
		}
		return len(all) == 2
	})
	if disks := at(v.must("SnapshotList"), "disks"); at(disks, "c") != nil || at(disks, "b") == nil {
		t.Errorf("%v", disks)
	}
	if got := v.read(0); got != 1 {
		t.Errorf("after the purge the volume reads %d", got)
	}
}

func (v *volume) modes() string {
	var out []string
	for _, r := range at(v.must("ReplicaList"), "replica_list", "replicas").([]any) {
		out = append(out, fmt.Sprint(at(r, "mode")))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// Modes as numbers of the reference.
const modeERR = 2

func replicaMethods(t *testing.T, v *volume) {
	if got := v.modes(); got != "1 1" {
		t.Errorf("modes %s", got)
	}
	v.must("ReplicaRebuildConcurrentSyncLimitSet", param("limit", 4))
	if a := v.must("ReplicaRebuildConcurrentSyncLimitGet"); at(a, "limit") != 4.0 {
		t.Errorf("%v", a)
	}
	v.refused("ReplicaRebuildConcurrentSyncLimitSet", codes.InvalidArgument, "1 to 5", param("limit", 6))
	v.refused("ReplicaRebuildConcurrentSyncLimitSet", codes.InvalidArgument, "1 to 5", param("limit", 0))
	v.must("ReplicaRebuildingQosSet", param("qos_limit_mbps", 100))
	third := v.replica()
	v.must("ReplicaAdd", param("replica_address", third), param("size", v.size), param("fast_sync", true))
	v.must("ReplicaVerifyRebuild", param("replica_address", third))
	if got := v.modes(); got != "1 1 1" {
		t.Errorf("modes %s after a replica was added", got)
	}
	all := at(v.must("ReplicaRebuildingStatus"), "status")
	if at(all, third, "state") != "complete" || at(all, third, "progress") != 100.0 ||
		len(at(all, third, "from_replica_address_list").([]any)) != 1 {
		t.Errorf("%v", all)
	}
	v.refused("ReplicaVerifyRebuild", codes.FailedPrecondition, "127.0.0.9:1",
		param("replica_address", "tcp://127.0.0.9:1"))
	v.must("ReplicaModeUpdate", param("replica_address", third), param("mode", modeERR))
	v.must("ReplicaRemove", param("replica_address", v.address[1]))
	v.refused("ReplicaRemove", codes.FailedPrecondition, "last", param("replica_address", v.address[0]))
	if got := v.modes(); got != "1" {
		t.Errorf("modes %s after replicas were removed", got)
	}
}

func metricsMethods(t *testing.T, v *volume) {
	wait.Until(t, "figures of a second in which something was written", func() bool {
		v.write(0, 7)
		v.read(0)
		m := at(v.must("MetricsGet"), "metrics")
		for _, key := range []string{"readThroughput", "writeThroughput", "readLatency", "writeLatency", "readIOPS",
			"writeIOPS"} {
			if s, _ := at(m, key).(string); s == "0" || s == "" {
				return false
			}
		}
		return true
	})
	// What is not mounted cannot be mounted again; TestRemount has the other half.
	if _, err := v.n.out.call(context.Background(), "RemountReadOnlyVolume",
		`{"volume_name": "one"}`); status.Code(err) != codes.NotFound {
		t.Errorf("%v", err)
	}
}

// unimplemented are the methods that nobody serves and those of data engine v2, which say so.
func unimplemented(t *testing.T, v *volume) {
	later := map[string]string{
		"BackupRestoreFinish":    "finishes by itself",
		"SPDKBackingImageCreate": "v2", "SPDKBackingImageDelete": "v2", "SPDKBackingImageGet": "v2",
		"SPDKBackingImageList": "v2", "SPDKBackingImageWatch": "v2",
	}
	for method, says := range later {
		_, err := v.n.out.call(context.Background(), method, "{}")
		wantCode(t, method, err, codes.Unimplemented, says)
	}
}

func wantCode(t *testing.T, what string, err error, want codes.Code, says string) {
	t.Helper()
	if status.Code(err) != want || !strings.Contains(status.Convert(err).Message(), says) {
		t.Errorf("%s: %v, want %s and %q", what, err, want, says)
	}
}

// methods lists a service's methods by reflection, as grpcurl does.
func (n *node) methods(name string) (out []string) {
	n.t.Helper()
	s, err := grpc_reflection_v1.NewServerReflectionClient(n.conn).ServerReflectionInfo(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	ask := func(q *grpc_reflection_v1.ServerReflectionRequest) *grpc_reflection_v1.ServerReflectionResponse {
		if err := s.Send(q); err != nil {
			n.t.Fatal(err)
		}
		a, err := s.Recv()
		if err != nil {
			n.t.Fatal(err)
		}
		return a
	}
	a := ask(&grpc_reflection_v1.ServerReflectionRequest{
		MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: name}})
	for _, raw := range a.GetFileDescriptorResponse().GetFileDescriptorProto() {
		var f descriptorpb.FileDescriptorProto
		if err := proto.Unmarshal(raw, &f); err != nil {
			n.t.Fatal(err)
		}
		for _, svc := range f.GetService() {
			if f.GetPackage()+"."+svc.GetName() != name {
				continue
			}
			for _, m := range svc.GetMethod() {
				out = append(out, m.GetName())
			}
		}
	}
	if len(out) == 0 {
		n.t.Fatalf("%s is not listed: %v", name, a)
	}
	return out
}

// TestListing compares what the port lists of itself with the proposal's and the reference's
// methods.
func TestListing(t *testing.T) {
	n := start(t, "nbd-unix")
	have := n.methods(service)
	text, err := os.ReadFile("testdata/proposal.txt")
	if err != nil {
		t.Fatal(err)
	}
	proposed := strings.Fields(string(text))
	if len(proposed) != 28 {
		t.Errorf("the proposal has 28 methods, testdata %d", len(proposed))
	}
	known := map[string]bool{}
	for _, m := range readTable(t, "proxy-engine.json").Methods {
		known[m.Name] = true
	}
	for _, m := range proposed {
		if !slices.Contains(have, m) {
			t.Errorf("%s of the proposal is not listed", m)
		}
		known[m] = true
	}
	for m := range known {
		if !slices.Contains(have, m) {
			t.Errorf("%s of the reference is not listed", m)
		}
	}
	for _, m := range have {
		if !known[m] {
			t.Errorf("%s is listed and nobody's", m)
		}
	}
	t.Logf("%s lists %d methods: %d of the proposal, %d of the reference", service, len(have), len(proposed),
		len(readTable(t, "proxy-engine.json").Methods))
}
