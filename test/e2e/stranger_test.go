package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
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
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/dataplane/wire"
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
	Open    []string // URLs that everybody may ask for
	HTTP    []string // method and URL
	GRPC    []call
	Data    []string // addresses of replicas for engines
	Files   []string
	Sockets []string
	Flood   *flood // instead of all of these
	Awaits  bool   // the end of its input: what it needs is made until then
	All     bool   // what was refused is told too
}

// call is a method at an address, and what is there.
type call struct{ Address, Method, Of string }

// attempt is one thing that a stranger has tried. It is a line of what he prints.
type attempt struct {
	Goal, Answer string
	In           bool
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
	if d.Awaits {
		if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	if d.Flood != nil {
		os.Exit(d.Flood.hold())
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
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	if out, err := strangers(ctx, t, c.doors(t, volume, endpoint)).CombinedOutput(); err != nil {
		t.Errorf("a stranger: %v\n%s", err, out)
	}
	c.detach(volume)
}

// strangers is this program as another user.
func strangers(ctx context.Context, t *testing.T, d doors) *exec.Cmd {
	t.Helper()
	data, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	// By this link the program is reached although its folder is root's.
	stranger := exec.CommandContext(ctx, "/proc/self/exe")
	stranger.Dir, stranger.Env = "/", []string{strangerVariable + "=" + string(data)}
	stranger.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return stranger
}

// doors lists everything at which a cluster with an attached volume answers.
func (c *cluster) doors(t *testing.T, volume, endpoint string) doors {
	d := doors{
		Files:   []string{c.Dir, c.Kubeconfig, endpoint},
		Sockets: []string{filepath.Join(c.Dir, "control.sock")},
	}
	if c.TokenFile != "" { // programs of before there was one
		d.Files = append(d.Files, c.TokenFile)
	}
	for _, name := range []string{"rest-header", "ui.html", "pki/ca.key"} {
		d.Files = append(d.Files, filepath.Join(c.Dir, name))
	}
	server := strings.TrimSuffix(c.API, "/v1")
	d.Open = append(d.Open, server+naming.HealthPath, c.KubeAPI+"/readyz")
	servers := []string{server}
	for _, address := range c.controllers() {
		servers = append(servers, "http://"+net.JoinHostPort(address, "9500"))
		d.HTTP = append(d.HTTP, "GET https://"+net.JoinHostPort(address, "9502")+"/v1/manager/rest/v1/volumes")
	}
	for _, n := range c.Nodes {
		d.HTTP = append(d.HTTP, "GET https://"+net.JoinHostPort(n.Address, "10250")+"/pods")
		d.calls(net.JoinHostPort(n.Address, "8500"), "instance manager of "+n.Name, "ProcessManagerService/ProcessList",
			"ProcessManagerService/ProcessCreate")
		d.calls(net.JoinHostPort(n.Address, "8501"), "proxy of "+n.Name, "imrpc.ProxyEngineService/VolumeGet",
			"ankole.enginebinary.v1.EngineBinary/Run")
		d.calls(net.JoinHostPort(n.Address, "8503"), "instances of "+n.Name, "imrpc.InstanceService/InstanceList")
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
	d.calls(etcd, "etcd", "etcdserverpb.KV/Range")
	d.HTTP = append(d.HTTP, "GET https://"+etcd+"/version",
		"GET https://"+net.JoinHostPort("127.0.0.1", strconv.Itoa(ports["etcd-peer"]))+"/members")
	e := c.engine(volume)
	at := net.JoinHostPort(e.Status.StorageIP, strconv.Itoa(e.Status.Port))
	for _, method := range []string{"Get", "Watch", "SnapshotCreate", "CloneSource", "SnapshotPurge", "ReplicaRemove",
		"Expand", "StandIn", "FrontendShutdown"} { // in this order: a grant needs a snapshot, and all an engine
		d.calls(at, "engine", "ankole.engine.v1.Engine/"+method)
	}
	for _, r := range c.replicasOf(volume) {
		at := net.JoinHostPort(r.Status.StorageIP, strconv.Itoa(r.Status.Port))
		d.calls(at, "replica "+r.Name, "grpc.health.v1.Health/Check")
		d.Data = append(d.Data, net.JoinHostPort(r.Status.StorageIP, strconv.Itoa(r.Status.Port+1)))
	}
	return d
}

func (d *doors) calls(address, of string, methods ...string) {
	for _, method := range methods {
		d.GRPC = append(d.GRPC, call{address, method, of})
	}
}

// try asks at every door, says which are open that should not be, or closed that should not be,
// and returns the status with which this program ends.
func (d *doors) try() (code int) {
	d.each(func(a attempt) {
		if a.In {
			code = 1
		}
		if a.In || d.All {
			line, _ := json.Marshal(a) // it has text and a bool
			fmt.Println(string(line))
		}
	})
	return code
}

// each tells of every door how it was found.
func (d *doors) each(tell func(attempt)) {
	anyServer := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // a stranger has no authority
	visitor := http.Client{Timeout: strangerTimeout, Transport: &http.Transport{TLSClientConfig: anyServer}}
	for _, url := range d.Open {
		status, err := request(&visitor, http.MethodGet, url, nil)
		tell(attempt{"find out whether it is there: GET " + url, fmt.Sprintf("status %d, %v", status, err),
			status != http.StatusOK})
	}
	for _, c := range d.GRPC {
		for _, way := range []credentials.TransportCredentials{insecure.NewCredentials(), credentials.NewTLS(anyServer)} {
			err := knock(c.Address, "/"+c.Method, way)
			tell(attempt{fmt.Sprintf("%s, %s at %s by %s", c.Of, c.Method, c.Address, way.Info().SecurityProtocol),
				fmt.Sprint(err), status.Code(err) != codes.Unavailable || strings.Contains(err.Error(), "connection refused")})
		}
	}
	d.listens(tell)
	for _, name := range d.Files {
		f, err := os.Open(name)
		tell(attempt{"open " + name, fmt.Sprint(f, err), !errors.Is(err, os.ErrPermission)})
	}
	for _, name := range d.Sockets {
		_, err := net.Dial("unix", name)
		tell(attempt{"connect to " + name, fmt.Sprint(err), !errors.Is(err, os.ErrPermission)})
	}
	for _, what := range d.HTTP {
		method, url, _ := strings.Cut(what, " ")
		for from, header := range map[string]http.Header{"": nil, " for the page of another site": {
			"Origin": {"http://evil.example"}, "Host": {"evil.example"}, "Sec-Fetch-Site": {"cross-site"}}} {
			status, err := request(&visitor, method, url, header)
			var handshake *net.OpError // the server's alert: it wants a certificate
			refused := errors.As(err, &handshake) && handshake.Op == "remote error"
			tell(attempt{what + from, fmt.Sprintf("status %d, %v", status, err),
				!refused && status != http.StatusUnauthorized && status != http.StatusForbidden})
		}
	}
}

func request(c *http.Client, method, url string, header http.Header) (int, error) {
	r, err := http.NewRequest(method, url, strings.NewReader(`{"name":"stranger","size":"1Gi"}`))
	if err != nil {
		return 0, err
	}
	maps.Copy(r.Header, header)
	r.Host = header.Get("Host")
	resp, err := c.Do(r)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, errors.Join(err, resp.Body.Close())
}

// unproved is what a stranger says at a data port of a replica.
func unproved(address string) map[string][]byte {
	frame := func(h wire.Header, payload []byte) []byte {
		h.Payload, h.Sum = uint32(len(payload)), wire.Sum(payload)
		var p [wire.HeaderSize]byte
		h.Encode(p[:])
		return append(p[:], payload...)
	}
	m := wire.InitiationMessage{MinVersion: wire.MinVersion, Version: wire.Version, Nonce: make([]byte, wire.NonceSize),
		Address: address}
	secret := make([]byte, wire.SecretSize)
	_, initiation := wire.Initiate(&m, secret, wire.NewDigester(secret))
	m.Reader = &wire.Grant{Snapshot: "stranger", For: "stranger", Expires: 1 << 40}
	_, reader := wire.Initiate(&m, secret, wire.NewDigester(secret))
	return map[string][]byte{"nothing": nil, "garbage": make([]byte, 4096),
		"a read":                           frame(wire.Header{Type: wire.Read, Len: 4096}, nil),
		"a hello":                          frame(wire.Header{Type: wire.Hello}, []byte("{}")),
		"an initiation of another secret":  frame(wire.Header{Type: wire.Initiation}, initiation),
		"an initiation of a made-up grant": frame(wire.Header{Type: wire.Initiation}, reader),
		"the beginning of an initiation":   frame(wire.Header{Type: wire.Initiation}, initiation)[:wire.HeaderSize],
	}
}

// listens tells what replicas answer to that, which they take some seconds for: all at once.
func (d *doors) listens(tell func(attempt)) {
	told, n := make(chan attempt), 0
	for _, address := range d.Data {
		for what, say := range unproved(address) {
			n++
			go func() {
				answer, in := listen(address, say, d.All)
				told <- attempt{"hear of a replica at " + address + ", who says " + what, answer, in}
			}()
		}
	}
	for range n {
		tell(<-told)
	}
}

// listen says what a replica answers to somebody: in, if that is anything but an end. Where nobody
// waits for the end, silence will do.
func listen(address string, say []byte, toTheEnd bool) (answer string, in bool) {
	patience := time.Second
	if toTheEnd {
		patience = 6 * strangerTimeout
	}
	c, err := net.DialTimeout("tcp", address, strangerTimeout)
	if err != nil {
		return err.Error(), true
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err.Error(), true
	}
	_, _ = c.Write(say) // the end may come before all is written
	n, err := io.Copy(io.Discard, c)
	var late net.Error
	open := toTheEnd && errors.As(err, &late) && late.Timeout()
	return fmt.Sprintf("%d bytes, then %v", n, err), n > 0 || open
}

// asked is what is asked of methods that do nothing if they are asked for nothing.
var asked = map[string]proto.Message{
	"ProcessCreate": &imrpc.ProcessCreateRequest{Spec: &imrpc.ProcessSpec{Name: "stranger", Binary: "/bin/sh",
		Args: []string{"-c", "exec sleep 60"}}},
	"SnapshotCreate": &enginev1.SnapshotCreateRequest{Name: "stranger", UserCreated: true},
	"CloneSource":    &enginev1.CloneSourceRequest{Snapshot: "stranger", ForVolumeUuid: "stranger"},
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
	var asks proto.Message = &emptypb.Empty{}
	if r := asked[path.Base(method)]; r != nil {
		asks = r
	}
	return conn.Invoke(ctx, method, asks, &emptypb.Empty{})
}
