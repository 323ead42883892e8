package cluster

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"ankole.storage/standalone/node"
)

func TestValidate(t *testing.T) {
	for _, tc := range []struct {
		change func(*Config)
		flag   string // named by the error; empty for none
	}{
		{func(*Config) {}, ""},
		{func(c *Config) { c.Nodes = 250 }, ""},
		{func(c *Config) { c.KubePort = 0 }, ""},
		{func(c *Config) { c.NodeNetwork = "127.255.255.0" }, ""},
		{func(c *Config) { c.NoManager, c.KubePort = true, 9500 }, ""},
		{func(c *Config) { c.Dir = "" }, "--dir"},
		{func(c *Config) { c.Nodes = 0 }, "--nodes"},
		{func(c *Config) { c.Nodes = -1 }, "--nodes"},
		{func(c *Config) { c.Nodes = 251 }, "--nodes"},
		{func(c *Config) { c.APIPort = 0 }, "--api-port"},
		{func(c *Config) { c.KubePort = 65536 }, "--kube-port"},
		{func(c *Config) { c.KubePort = 9500 }, "--kube-port"},
		{func(c *Config) { c.KubeletPort = -5 }, "--kubelet-port"},
		{func(c *Config) { c.NodeNetwork = "127.0.1.7" }, "--node-network"},
		{func(c *Config) { c.NodeNetwork = "192.168.0.0" }, "--node-network"},
		{func(c *Config) { c.NodeNetwork = "::1" }, "--node-network"},
		{func(c *Config) { c.NodeNetwork = "127.0.0.0" }, "--node-network"},
		{func(c *Config) { c.PodNetworks = []string{"kube-system/a=127.0.2.0", "kube-system/b=127.0.3.0"} }, ""},
		{func(c *Config) { c.PodNetworks = []string{"a=127.0.2.0"} }, "--pod-network"},
		{func(c *Config) { c.PodNetworks = []string{"kube-system/a/b=127.0.2.0"} }, "--pod-network"},
		{func(c *Config) { c.PodNetworks = []string{"kube-system/a"} }, "--pod-network"},
		{func(c *Config) { c.PodNetworks = []string{"kube-system/a=10.0.2.0"} }, "--pod-network"},
		{func(c *Config) { c.PodNetworks = []string{"kube-system/a=127.0.2.1"} }, "--pod-network"},
		{func(c *Config) { c.PodNetworks = []string{"kube-system/a=127.0.1.0"} }, "used by --node-network"},
		{func(c *Config) { c.PodNetworks = []string{"kube-system/a=127.0.0.0"} }, "used by the API server"},
		{func(c *Config) { c.PodNetworks = []string{"kube-system/a=127.0.2.0", "kube-system/b=127.0.2.0"} },
			"used by kube-system/a"},
		{func(c *Config) { c.PodNetworks = []string{"kube-system/a=127.0.2.0", "kube-system/a=127.0.3.0"} }, "twice"},
		{func(c *Config) { c.NodeGrace = time.Second }, "--node-grace"},
		{func(c *Config) { c.StopGrace = -1 }, "--stop-grace"},
		{func(c *Config) { c.Output = "yaml" }, "--output"},
		{func(c *Config) { c.NodeCPU = "-1" }, "--node-cpu"},
		{func(c *Config) { c.NodeCPU = "2,many" }, "--node-cpu \"many\""},
		{func(c *Config) { c.NodeMemory = "lots" }, "--node-memory"},
	} {
		c := Defaults()
		tc.change(&c)
		err := c.Validate()
		switch {
		case tc.flag == "" && err != nil:
			t.Errorf("refused: %v", err)
		case tc.flag != "" && (!errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), tc.flag)):
			t.Errorf("error %v must be ErrConfig and name %s", err, tc.flag)
		}
	}
}

func TestPlaces(t *testing.T) {
	c := Defaults()
	if got := c.nodeAddress(1) + " " + c.nodeAddress(250); got != "127.0.1.1 127.0.1.250" {
		t.Errorf("addresses %s", got)
	}
	c.PodNetworks = []string{"kube-system/a=127.0.2.0", "b/b=127.3.4.0"}
	c.Nodes = 100
	want2 := []node.PodNetwork{{Name: "kube-system/a", Place: node.Place{Address: "127.0.2.7",
		Further: []string{"127.0.2.107", "127.0.2.207"}}}, {Name: "b/b", Place: node.Place{Address: "127.3.4.7",
		Further: []string{"127.3.4.107", "127.3.4.207"}}}}
	if got := c.podNetworks(7); !reflect.DeepEqual(got, want2) {
		t.Errorf("networks %v", got)
	}
	c.NodeMemory = "16Gi"
	for cpus, want := range map[string][]int64{"8": {8, 8, 8, 8}, "2,4,8": {2, 4, 8, 8}} {
		c.NodeCPU = cpus
		for k, want := range want {
			list, err := c.capacity(k + 1)
			if err != nil {
				t.Fatal(err)
			}
			if cpu, mem := list[v1.ResourceCPU], list[v1.ResourceMemory]; cpu.Value() != want || mem.Value() != 16<<30 {
				t.Errorf("--node-cpu %s: node %d offers %v", cpus, k+1, list)
			}
		}
	}
	c.DeviceDir = "/somewhere"
	if got := c.deviceDir("/state", 2); got != "/somewhere/node-2" {
		t.Errorf("devices at %s", got)
	}
	c.DeviceDir = ""
	want := "/state/nodes/node-2/dev"
	if os.Geteuid() == 0 {
		want = "/dev/longhorn/node-2"
	}
	if got := c.deviceDir("/state", 2); got != want {
		t.Errorf("devices at %s, want %s", got, want)
	}
	renew, length := c.leaseTimes()
	if renew*4 != length || length != c.NodeGrace {
		t.Errorf("lease of %s renewed every %s", length, renew)
	}
}

// TestMakeImage: a built program becomes an image; one that is not built has none.
func TestMakeImage(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "engine")
	image := filepath.Join(dir, "images", node.Canonical("ankole/engine:dev"))
	if err := makeImage(image, program, []string{"engine", "longhorn"}); err != nil {
		t.Fatal(err)
	}
	images := node.Images{filepath.Join(dir, "images")}
	if _, err := images.Find("ankole/engine:dev"); !errors.Is(err, node.ErrNoImage) {
		t.Errorf("an image of a program that is not built: %v", err)
	}
	if err := os.WriteFile(program, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time over what the first left
		if err := makeImage(image, program, []string{"engine", "longhorn"}); err != nil {
			t.Fatal(err)
		}
	}
	img, err := images.Find("ankole/engine:dev")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"engine", "longhorn"} {
		if got, err := img.Lookup(name, ""); err != nil || got != filepath.Join(image, "bin", name) {
			t.Errorf("%s at %q, %v", name, got, err)
		}
	}
}

// TestReadyIsStable: other programs read these keys.
func TestReadyIsStable(t *testing.T) {
	data, err := json.Marshal(Ready{Nodes: []Node{{}}})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"ready":false,"pid":0,"dir":"","kubeconfig":"","kubeAPI":"","api":"","tokenFile":"","loginPage":"","nodes":[{"name":"","address":"","root":"","devices":""}],"startupSeconds":0}`
	if string(data) != want {
		t.Errorf("ready line %s, want %s", data, want)
	}
}
