package scale

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/test/testcluster"
	"ankole.storage/test/wait"
)

const (
	// volumeSize is as small as it can be, so that hundreds fit on a small disk.
	volumeSize = 4 << 20
	// deadline bounds every wait.
	deadline = 10 * time.Minute
	settle   = 5 * time.Second
)

// bed is a cluster of three nodes with a client.
type bed struct {
	client.WithWatch
	c    *testcluster.Cluster
	made int
}

func newBed(t testing.TB, images string) *bed {
	t.Helper()
	log.SetLogger(logr.Discard()) // warnings of the API server
	// The models of instance managers have no certificates.
	o := testcluster.Options{Nodes: 3, Manager: true, Images: images, Plaintext: true}
	if *folder != "" {
		o.Args = []string{"--kube-apiserver-arg=--profiling=true"}
	}
	c := testcluster.Start(t, o)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1beta2.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	kube, err := client.NewWithWatch(c.RESTConfig(t), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{WithWatch: kube, c: c}
	b.wait(t, &v1beta2.InstanceManagerList{}, 3, func(o client.Object) bool {
		im := o.(*v1beta2.InstanceManager)
		return im.Status.CurrentState == v1beta2.InstanceManagerStateRunning && im.Status.APIVersion != 0
	})
	b.wait(t, &v1beta2.EngineImageList{}, 1, func(o client.Object) bool {
		return o.(*v1beta2.EngineImage).Status.State == v1beta2.EngineImageStateDeployed
	})
	b.roomForAll(t)
	return b
}

// roomForAll lets the disks promise more than they have.
func (b *bed) roomForAll(t testing.TB) {
	t.Helper()
	for name, value := range map[string]string{
		"storage-over-provisioning-percentage": "100000", "storage-minimal-available-percentage": "0",
	} {
		s := &v1beta2.Setting{}
		if err := b.Get(t.Context(), client.ObjectKey{Namespace: naming.Namespace, Name: name}, s); err != nil {
			t.Fatal(err)
		}
		s.Value = value
		if err := b.Update(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	b.wait(t, &v1beta2.NodeList{}, 3, func(o client.Object) bool {
		for _, d := range o.(*v1beta2.Node).Status.DiskStatus {
			if !v1beta2.IsConditionTrue(d.Conditions, v1beta2.DiskConditionSchedulable) {
				return false
			}
		}
		return true
	})
}

// wait waits until so many objects of a kind are done, and returns when each was, by name.
func (b *bed) wait(t testing.TB, list client.ObjectList, count int,
	done func(client.Object) bool) map[string]time.Time {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	when := map[string]time.Time{}
	for {
		// Without a resource version the watch begins with what there is.
		w, err := b.Watch(ctx, list, client.InNamespace(naming.Namespace))
		if err != nil {
			t.Fatal(err)
		}
		for e := range w.ResultChan() {
			o, ok := e.Object.(client.Object)
			if !ok || e.Type == watch.Deleted || !done(o) {
				continue
			}
			if _, seen := when[o.GetName()]; !seen {
				when[o.GetName()] = time.Now()
			}
			if len(when) >= count {
				w.Stop()
				return when
			}
		}
		if ctx.Err() != nil {
			wait.RanOut(t, "objects that are done")
			t.Fatalf("%d of %d %T are done", len(when), count, list)
		}
	}
}

// create makes volumes until there are so many, one after the other, and returns how long each
// request took.
func (b *bed) create(t testing.TB, upTo int) (took []time.Duration) {
	t.Helper()
	for ; b.made < upTo; b.made++ {
		v := &v1beta2.Volume{ObjectMeta: metav1.ObjectMeta{Namespace: naming.Namespace, Name: nameOf(b.made)}}
		v.Spec.Size, v.Spec.NumberOfReplicas, v.Spec.Frontend = volumeSize, 3, v1beta2.VolumeFrontendBlockDev
		began := time.Now()
		if err := b.Create(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	b.wait(t, &v1beta2.VolumeList{}, upTo, func(o client.Object) bool {
		v := o.(*v1beta2.Volume)
		return v.Status.State != v1beta2.VolumeStateCreating && v.Status.State != v1beta2.VolumeStateNew &&
			v1beta2.IsConditionTrue(v.Status.Conditions, v1beta2.VolumeConditionScheduled)
	})
	return took
}

func nameOf(i int) string { return fmt.Sprintf("scale-%04d", i) }

// attach asks for the volumes from first on to be attached, all at once, and returns how long each
// took.
func (b *bed) attach(t testing.TB, first int) (took []time.Duration) {
	t.Helper()
	began := map[string]time.Time{}
	refused := map[string]func() error{}
	var mu sync.Mutex
	var work sync.WaitGroup
	for i := first; i < b.made; i++ {
		work.Go(func() {
			a := &v1beta2.VolumeAttachment{}
			if err := b.Get(t.Context(), client.ObjectKey{Namespace: naming.Namespace, Name: nameOf(i)}, a); err != nil {
				t.Error(err)
				return
			}
			before := a.DeepCopy()
			a.Spec.AttachmentTickets = map[string]v1beta2.AttachmentTicket{"scale": {ID: "scale",
				NodeID: testcluster.NodeName(i%3 + 1), Type: v1beta2.AttacherTypeLonghornAPI}}
			patch := func() error { return b.Patch(t.Context(), a, client.MergeFrom(before)) }
			mu.Lock()
			began[nameOf(i)] = time.Now()
			mu.Unlock()
			if patch() != nil {
				mu.Lock()
				defer mu.Unlock()
				refused[nameOf(i)] = patch
			}
		})
	}
	work.Wait()
	for name, patch := range refused { // of many at once some are not reviewed within the API server's 10 s
		wait.For(t, "a ticket for volume "+name, patch)
	}
	when := b.wait(t, &v1beta2.VolumeList{}, b.made, func(o client.Object) bool {
		v := o.(*v1beta2.Volume)
		return v.Status.State == v1beta2.VolumeStateAttached && v.Status.Robustness == v1beta2.VolumeRobustnessHealthy
	})
	for name, at := range began {
		took = append(took, when[name].Sub(at))
	}
	slices.Sort(took)
	return took
}

// figures are what all managers and the API server have used until now.
type figures struct {
	// requests of the managers by client, verb and resource; watches are left out.
	requests map[string]float64
	// looks of the controllers at objects, by controller.
	looks map[string]float64
	// managerCPU and clusterCPU are seconds, of all managers and of everything of Kubernetes.
	managerCPU, clusterCPU float64
	// memory is the largest resident size of a controller and of an agent, in bytes, by label app.
	memory map[string]float64
}

func (b *bed) figures(t testing.TB) figures {
	t.Helper()
	f := figures{requests: map[string]float64{}, looks: map[string]float64{}, clusterCPU: cpuOf(t, b.c.PID),
		memory: map[string]float64{}}
	var pods corev1.PodList
	if err := b.List(t.Context(), &pods, client.InNamespace(naming.Namespace)); err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		app := p.Labels["app"]
		if app != naming.AppController && app != naming.AppManager {
			continue
		}
		answer, err := http.Get("http://" + net.JoinHostPort(p.Status.PodIP, strconv.Itoa(naming.PortManager)) + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(answer.Body)
		for lines.Scan() {
			name, value, ok := cutLast(lines.Text())
			x, err := strconv.ParseFloat(value, 64)
			switch {
			case !ok || err != nil:
			case name == "process_cpu_seconds_total":
				f.managerCPU += x
			case name == "process_resident_memory_bytes":
				f.memory[app] = max(f.memory[app], x)
			case strings.HasPrefix(name, "ankole_manager_api_requests_total{") && !strings.Contains(name, `verb="watch"`):
				f.requests[strings.TrimPrefix(name, "ankole_manager_api_requests_total")] += x
			case strings.HasPrefix(name, "controller_runtime_reconcile_total{"):
				controller, _, _ := strings.Cut(strings.TrimPrefix(name, `controller_runtime_reconcile_total{controller="`), `"`)
				f.looks[controller] += x
			}
		}
		answer.Body.Close()
	}
	return f
}

func cutLast(line string) (name, value string, ok bool) {
	i := strings.LastIndexByte(line, ' ')
	if i < 0 || strings.HasPrefix(line, "#") {
		return "", "", false
	}
	return line[:i], line[i+1:], true
}

// cpuOf is the processor time of a process and its ended children, in seconds.
func cpuOf(t testing.TB, pid int) float64 {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+2:]))
	var ticks float64
	for _, f := range fields[11:13] { // utime, stime
		x, err := strconv.ParseFloat(f, 64)
		if err != nil {
			t.Fatal(err)
		}
		ticks += x
	}
	return ticks / 100 // USER_HZ
}

// peaks says what the most memory was that a manager of each kind has had, of those that a cluster
// runs: a limit has to allow for the peak of a start and of many changes at once.
func peaks(t testing.TB, cluster int) string {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		t.Fatal(err)
	}
	most := map[string]int{}
	for _, path := range processes {
		text, err := os.ReadFile(path)
		command, gone := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if err != nil || gone != nil || !strings.Contains(string(text), fmt.Sprintf("\nPPid:\t%d\n", cluster)) {
			continue
		}
		words := strings.Split(string(command), "\x00")
		_, line, there := strings.Cut(string(text), "\nVmHWM:")
		if len(words) < 2 || words[0] != "manager" || !there {
			continue
		}
		kib, err := strconv.Atoi(strings.Fields(line)[0])
		if err != nil {
			t.Fatal(err)
		}
		most[words[1]] = max(most[words[1]], kib)
	}
	var said []string
	for _, kind := range slices.Sorted(maps.Keys(most)) {
		said = append(said, fmt.Sprintf("manager %s %d MB", kind, most[kind]*1024/1e6))
	}
	return strings.Join(said, ", ")
}

// since is what was used since before.
func (f figures) since(before figures) figures {
	return figures{requests: less(f.requests, before.requests), looks: less(f.looks, before.looks),
		managerCPU: f.managerCPU - before.managerCPU, clusterCPU: f.clusterCPU - before.clusterCPU, memory: f.memory}
}

// less is by how much counters have grown.
func less(now, before map[string]float64) map[string]float64 {
	out := map[string]float64{}
	for k, x := range now {
		if d := x - before[k]; d > 0 {
			out[k] = d
		}
	}
	return out
}

func total(counters map[string]float64) (sum float64) {
	for _, x := range counters {
		sum += x
	}
	return sum
}

// most describes the most frequent ones.
func most(counters map[string]float64, n int) string {
	keys := slices.SortedFunc(maps.Keys(counters), func(a, b string) int {
		return cmp.Or(cmp.Compare(counters[b], counters[a]), strings.Compare(a, b))
	})
	var out strings.Builder
	for _, k := range keys[:min(n, len(keys))] {
		fmt.Fprintf(&out, "%8.0f %s\n", counters[k], k)
	}
	return out.String()
}

func percentile(sorted []time.Duration, p int) time.Duration {
	return sorted[(len(sorted)-1)*p/100].Round(time.Millisecond)
}
