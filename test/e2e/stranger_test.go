package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"ankole.storage/controlplane/naming"
	"ankole.storage/test/lack"
)

const (
	// strangerVariable has this program try doors as another user, and tells which.
	strangerVariable = "ANKOLE_TEST_STRANGER"
	nobody           = 65534
	strangerTimeout  = 10 * time.Second
)

// doors are what a stranger on the machine tries.
type doors struct {
	Open    []string          // URLs that everybody may ask for
	HTTP    []string          // method and URL
	GRPC    map[string]string // by address and method: what it is
	Files   []string
	Sockets []string
}

func init() {
	text := os.Getenv(strangerVariable)
	if text == "" {
		return
	}
	var d doors
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(d.try())
}

// strangerGetsNothing: whoever is on the machine, but for its owner and root, gets no more of a
// cluster than its health.
func (c *cluster) strangerGetsNothing(t *testing.T, volume string) {
	t.Helper()
	if os.Geteuid() != 0 {
		lack.Less(t, "only root can be another user")
		return
	}
	endpoint := c.attach(volume, "node-1", 3)
	data, err := json.Marshal(c.doors(t, volume, endpoint))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	// By this link the program is reached although its folder is root's.
	stranger := exec.CommandContext(ctx, "/proc/self/exe")
	stranger.Dir, stranger.Env = "/", []string{strangerVariable + "=" + string(data)}
	stranger.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if out, err := stranger.CombinedOutput(); err != nil {
		t.Errorf("a stranger: %v\n%s", err, out)
	}
	c.detach(volume)
}

// doors lists everything at which a cluster with an attached volume answers.
func (c *cluster) doors(t *testing.T, volume, endpoint string) doors {
	d := doors{
		GRPC:    map[string]string{},
		Files:   []string{c.Dir, c.TokenFile, c.Kubeconfig, endpoint},
		Sockets: []string{filepath.Join(c.Dir, "control.sock")},
	}
	for _, name := range []string{"rest-header", "pki/ca.key"} {
		d.Files = append(d.Files, filepath.Join(c.Dir, name))
	}
	server := strings.TrimSuffix(c.API, "/v1")
	d.Open = append(d.Open, server+naming.HealthPath, c.KubeAPI+"/readyz")
	servers := []string{server}
	for _, n := range c.Nodes {
		servers = append(servers, "http://"+net.JoinHostPort(n.Address, "9500"))
		d.HTTP = append(d.HTTP, "GET https://"+net.JoinHostPort(n.Address, "10250")+"/pods",
			"POST https://"+net.JoinHostPort(n.Address, "9502")+"/v1/manager/engine-binary",
			"GET https://"+net.JoinHostPort(n.Address, "9502")+"/v1/manager/rest/v1/volumes",
			"GET https://"+net.JoinHostPort(n.Address, "9502")+"/v1/manager/metrics")
		for _, method := range []string{"ProcessManagerService/ProcessList", "ProcessManagerService/ProcessCreate"} {
			d.GRPC[net.JoinHostPort(n.Address, "8500")+"/"+method] = "instance manager of " + n.Name
		}
		d.GRPC[net.JoinHostPort(n.Address, "8501")+"/imrpc.ProxyEngineService/VolumeGet"] = "proxy of " + n.Name
		d.GRPC[net.JoinHostPort(n.Address, "8503")+"/imrpc.InstanceService/InstanceList"] = "instances of " + n.Name
	}
	for _, s := range servers {
		d.HTTP = append(d.HTTP, "GET "+s+"/v1/volumes", "POST "+s+"/v1/volumes", "GET "+s+"/v1/settings",
			"POST "+s+"/v1/volumes/"+volume+"?action=snapshotCreate", "DELETE "+s+"/v1/volumes/"+volume)
	}
	for _, path := range []string{"/api", "/api/v1/secrets", "/apis/longhorn.io/v1beta2/volumes"} {
		d.HTTP = append(d.HTTP, "GET "+c.KubeAPI+path)
	}
	text, err := os.ReadFile(filepath.Join(c.Dir, "ports.json"))
	var ports map[string]int
	if err == nil {
		err = json.Unmarshal(text, &ports)
	}
	if err != nil || ports["etcd"] == 0 || ports["etcd-peer"] == 0 {
		t.Fatalf("ports %v: %v", ports, err)
	}
	etcd := net.JoinHostPort("127.0.0.1", strconv.Itoa(ports["etcd"]))
	d.GRPC[etcd+"/etcdserverpb.KV/Range"] = "etcd"
	d.HTTP = append(d.HTTP, "GET https://"+etcd+"/version",
		"GET https://"+net.JoinHostPort("127.0.0.1", strconv.Itoa(ports["etcd-peer"]))+"/members")
	e := c.engine(volume)
	at := net.JoinHostPort(e.Status.StorageIP, strconv.Itoa(e.Status.Port))
	for _, method := range []string{"Get", "SnapshotCreate", "StandIn"} {
		d.GRPC[at+"/ankole.engine.v1.Engine/"+method] = "engine"
	}
	for _, r := range c.replicasOf(volume) {
		at := net.JoinHostPort(r.Status.StorageIP, strconv.Itoa(r.Status.Port))
		d.GRPC[at+"/grpc.health.v1.Health/Check"] = "replica " + r.Name
	}
	return d
}

// try asks at every door, says which are open that should not be, or closed that should not be,
// and returns the status with which this program ends.
func (d *doors) try() (code int) {
	say := func(format string, args ...any) {
		fmt.Printf(format+"\n", args...)
		code = 1
	}
	anyServer := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // a stranger has no authority
	asked := http.Client{Timeout: strangerTimeout, Transport: &http.Transport{TLSClientConfig: anyServer}}
	ask := func(method, url string) (int, error) {
		req, err := http.NewRequest(method, url, strings.NewReader(`{"name":"stranger","size":"1Gi"}`))
		if err != nil {
			return 0, err
		}
		resp, err := asked.Do(req)
		if err != nil {
			return 0, err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, errors.Join(err, resp.Body.Close())
	}
	for _, url := range d.Open {
		if status, err := ask(http.MethodGet, url); status != http.StatusOK {
			say("%s: status %d, %v: whether others are closed shows nothing", url, status, err)
		}
	}
	for _, request := range d.HTTP {
		method, url, _ := strings.Cut(request, " ")
		status, err := ask(method, url)
		var handshake *net.OpError // the server's alert: it wants a certificate
		refused := errors.As(err, &handshake) && handshake.Op == "remote error"
		if !refused && status != http.StatusUnauthorized && status != http.StatusForbidden {
			say("%s: status %d, %v", request, status, err)
		}
	}
	for where, what := range d.GRPC {
		address, method, _ := strings.Cut(where, "/")
		for way, c := range map[string]credentials.TransportCredentials{
			"plaintext": insecure.NewCredentials(), "TLS": credentials.NewTLS(anyServer)} {
			if err := knock(address, "/"+method, c); status.Code(err) != codes.Unavailable ||
				strings.Contains(err.Error(), "connection refused") {
				say("%s, %s at %s by %s: %v", what, method, address, way, err)
			}
		}
	}
	for _, path := range d.Files {
		if f, err := os.Open(path); !errors.Is(err, os.ErrPermission) {
			say("%s: %v %v", path, f, err)
		}
	}
	for _, path := range d.Sockets {
		if _, err := net.Dial("unix", path); !errors.Is(err, os.ErrPermission) {
			say("%s: %v", path, err)
		}
	}
	return code
}

// knock calls a method without anything that shows who asks.
func knock(address, method string, c credentials.TransportCredentials) error {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(c))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), strangerTimeout)
	defer cancel()
	return conn.Invoke(ctx, method, &emptypb.Empty{}, &emptypb.Empty{})
}
