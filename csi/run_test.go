package csi

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"ankole.storage/csi/csitest"
	"ankole.storage/csi/request"
	"ankole.storage/test/wait"
)

func dial(t *testing.T, path string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// TestRegistration: the program serves, registers itself with the kubelet, says that it lives, and
// ends in good order, with the manager away; a kubelet that refuses it is asked again, and the
// services go on. Sockets that a killed process has left are no obstacle.
func TestRegistration(t *testing.T) {
	dir, err := os.MkdirTemp("", "csi-run-") // the path of a socket has 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	cfg := Config{Services: []string{ServiceNode}, NodeID: "node-1", ManagerURL: "http://127.0.0.1:1/v1",
		Endpoint:        filepath.Join(dir, "csi", "csi.sock"),
		RegistrationDir: filepath.Join(dir, "registry"), KubeletEndpoint: DefaultKubeletEndpoint,
		PodIP: "127.0.0.1", HealthPort: freePort(t), Patience: time.Second}
	for _, refused := range []bool{false, true} {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		done := make(chan error, 1)
		running, end := context.WithCancel(ctx)
		defer end()
		go func() { done <- Run(running, cfg) }()
		kubelet := registration.NewRegistrationClient(dial(t, filepath.Join(cfg.RegistrationDir, DriverName+"-reg.sock")))
		info, err := kubelet.GetInfo(ctx, &registration.InfoRequest{})
		if err != nil || info.Type != registration.CSIPlugin || info.Name != "driver.longhorn.io" ||
			info.Endpoint != "/var/lib/kubelet/plugins/driver.longhorn.io/csi.sock" || len(info.SupportedVersions) == 0 {
			t.Fatalf("%v, %v", info, err)
		}
		driver := spec.NewIdentityClient(dial(t, cfg.Endpoint))
		if got, err := driver.GetPluginInfo(ctx, &spec.GetPluginInfoRequest{}); err != nil ||
			got.Name != "driver.longhorn.io" {
			t.Fatalf("%v, %v", got, err)
		}
		resp, err := http.Get("http://" + cfg.health() + "/healthz")
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%v, %v", resp, err)
		}
		resp.Body.Close()
		state := &registration.RegistrationStatus{PluginRegistered: !refused, Error: "wrong version"}
		if _, err := kubelet.NotifyRegistrationStatus(ctx, state); err != nil {
			t.Fatal(err)
		}
		if refused {
			registry := filepath.Join(cfg.RegistrationDir, DriverName+"-reg.sock")
			wait.Until(t, "the old socket goes", func() bool {
				_, err := os.Stat(registry)
				return err != nil
			})
			if _, err := registration.NewRegistrationClient(dial(t, registry)).GetInfo(ctx,
				&registration.InfoRequest{}); err != nil {
				t.Errorf("after a refusal the kubelet finds nothing: %v", err)
			}
		}
		nodes := spec.NewNodeClient(dial(t, cfg.Endpoint))
		if got, err := nodes.NodeGetInfo(ctx, &spec.NodeGetInfoRequest{}); err != nil || got.NodeId != "node-1" {
			t.Errorf("refused %v: %v, %v", refused, got, err)
		}
		end()
		if err := <-done; err != nil {
			t.Errorf("refused %v: it ended with %v", refused, err)
		}
	}
}

// TestServices: a process serves what it is told to, and a controller needs no node.
func TestServices(t *testing.T) {
	dir, err := os.MkdirTemp("", "csi-run-") // the path of a socket has 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for _, services := range [][]string{{ServiceNode}, {ServiceController}, {ServiceNode, ServiceController}} {
		cfg := Config{Services: services, ManagerURL: "http://127.0.0.1:1/v1", Patience: time.Second,
			Endpoint: filepath.Join(dir, strings.Join(services, "-"), "csi.sock")}
		if cfg.serves(ServiceNode) {
			cfg.NodeID = "node-1"
		}
		ctx, end := context.WithTimeout(context.Background(), time.Minute)
		defer end()
		done := make(chan error, 1)
		go func() { done <- Run(ctx, cfg) }()
		conn := dial(t, cfg.Endpoint)
		if _, err := spec.NewIdentityClient(conn).Probe(ctx, &spec.ProbeRequest{}); err != nil {
			t.Fatal(err)
		}
		_, errNode := spec.NewNodeClient(conn).NodeGetCapabilities(ctx, &spec.NodeGetCapabilitiesRequest{})
		_, errController := spec.NewControllerClient(conn).ControllerGetCapabilities(ctx,
			&spec.ControllerGetCapabilitiesRequest{})
		for service, err := range map[string]error{ServiceNode: errNode, ServiceController: errController} {
			want := codes.Unimplemented
			if cfg.serves(service) {
				want = codes.OK
			}
			if status.Code(err) != want {
				t.Errorf("%v: service %s answers %v", services, service, err)
			}
		}
		end()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestConfig: what a program cannot run with is said before it serves.
func TestConfig(t *testing.T) {
	good := Config{Services: []string{ServiceNode}, NodeID: "node-1", ManagerURL: DefaultManagerURL,
		Endpoint:        DefaultEndpoint,
		RegistrationDir: "/registration",
		KubeletEndpoint: DefaultKubeletEndpoint, Patience: DefaultPatience}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for words, change := range map[string]func(c *Config){
		"--service":          func(c *Config) { c.Services = nil },
		"is none of":         func(c *Config) { c.Services = []string{"nodes"} },
		"NODE_NAME":          func(c *Config) { c.NodeID = "" },
		"csi.sock":           func(c *Config) { c.Endpoint = "csi.sock" },
		"--kubelet-endpoint": func(c *Config) { c.KubeletEndpoint = "" },
		"--health-port":      func(c *Config) { c.HealthPort = 70000 },
		"--patience":         func(c *Config) { c.Patience = 0 },
		"address":            func(c *Config) { c.ManagerURL = "ftp://x" },
	} {
		c := good
		change(&c)
		csitest.Says(t, c.Validate(), words)
	}
}

// TestHealthAddress: the address of a Pod may be one of IPv6.
func TestHealthAddress(t *testing.T) {
	for want, c := range map[string]Config{
		"10.0.0.7:9808": {PodIP: "10.0.0.7", HealthPort: 9808}, "[fd00::7]:9808": {PodIP: "fd00::7", HealthPort: 9808},
		":9808": {HealthPort: 9808}, "": {PodIP: "fd00::7"},
	} {
		if got := c.health(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestLogged: a log that is not to tell all has a line for each call that changes something, or
// fails.
func TestLogged(t *testing.T) {
	for call, told := range map[string]bool{
		"Identity/Probe": false, "Identity/GetPluginInfo": false, "Node/NodeGetVolumeStats": false,
		"Controller/ListVolumes": false, "Controller/ControllerGetVolume": false, "Controller/GetCapacity": false,
		"Controller/ValidateVolumeCapabilities": false, "Controller/CreateVolume": true,
		"Controller/ControllerPublishVolume": true, "Controller/DeleteSnapshot": true, "Node/NodeStageVolume": true,
		"Node/NodeUnpublishVolume": true,
	} {
		for _, result := range []error{nil, request.Refuse("nonsense")} {
			var out strings.Builder
			_, err := logged(slog.New(slog.NewTextHandler(&out, nil)))(t.Context(), nil,
				&grpc.UnaryServerInfo{FullMethod: "/csi.v1." + call},
				func(context.Context, any) (any, error) { return nil, result })
			if !errors.Is(err, result) || strings.Contains(out.String(), path.Base(call)) != (told || result != nil) {
				t.Errorf("%s with %v: %v, told: %s", call, result, err, out.String())
			}
		}
	}
}
