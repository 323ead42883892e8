// Package upgrade_test upgrades volumes while they are used, as a cluster does: an instance manager
// starts the processes, new ones replace old ones, of another build, and a program that knows
// nothing of it writes and verifies all the while.
package upgrade_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/dataplane/device/blockdev"
	"ankole.storage/host/patience"
	"ankole.storage/instancemanager/client"
	"ankole.storage/instancemanager/instancetest"
	"ankole.storage/instancemanager/process"
	"ankole.storage/instancemanager/witness/relayclient"
	"ankole.storage/test/lack"
	"ankole.storage/test/logs"
	"ankole.storage/test/rig"
	"ankole.storage/test/wait"
)

const (
	volume     = "demo"
	engineName = "demo-e-0"
	volumeSize = 256 << 20
)

// bed is a node with an instance manager and a volume.
type bed struct {
	t         *testing.T
	dir       string
	ip        string
	transport string
	cmd       *exec.Cmd
	client    *client.Client
	uuid      string
	secret    string
	witness   rig.Witness
	members   []string
	// replicas are the names of the processes in use, generation counts upgrades.
	replicas   []string
	generation int
}

// newBed starts an instance manager, which dies with the test.
func newBed(t *testing.T, transport string, replicas int) *bed {
	t.Helper()
	if transport == "fuse-loop" {
		if err := blockdev.Available(); err != nil {
			lack.Skip(t, err)
		}
	}
	dir, err := os.MkdirTemp("", "up-") // short: unix sockets have short paths
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{t: t, dir: dir, ip: instancetest.Host(), transport: transport, uuid: uuid.NewString(),
		secret: hex.EncodeToString([]byte(strings.Repeat("s", 32)))}
	t.Cleanup(func() {
		new(logs.Watch).Check(t, filepath.Join(dir, "instance-manager.log"), filepath.Join(dir, "logs"))
		if !t.Failed() {
			os.RemoveAll(dir)
			return
		}
		t.Logf("logs are kept in %s", b.dir)
	})
	if err := os.MkdirAll(filepath.Join(dir, "host", "replicas"), 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range replicas {
		b.members = append(b.members, fmt.Sprintf("demo-%08d", i))
	}
	b.startManager()
	return b
}

func (b *bed) startManager() {
	b.t.Helper()
	mounts, err := json.Marshal(map[string]string{"/dev/longhorn": b.devices(), "/host": filepath.Join(b.dir, "host"),
		"/engine-binaries": filepath.Join(b.dir, "bin")})
	if err != nil {
		b.t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(b.dir, "instance-manager.log"))
	if err != nil {
		b.t.Fatal(err)
	}
	defer log.Close()
	b.cmd = exec.Command(rig.Program(b.t, "instance-manager"), "daemon", "--allow-plaintext", "tests",
		"--listen", "0.0.0.0:8500", "--logs-dir",
		filepath.Join(b.dir, "logs"),
		"--witness-socket", filepath.Join(b.dir, "w", "s.sock"))
	b.cmd.Env = append(os.Environ(), "POD_IP="+b.ip, "POD_NAME=im-test", "ANKOLE_MOUNTS="+string(mounts))
	b.cmd.Stdout, b.cmd.Stderr = log, log
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := b.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(b.stopManager)
	if b.client, err = client.Dial(net.JoinHostPort(b.ip, "8500"), nil); err != nil {
		b.t.Fatal(err)
	}
	wait.Until(b.t, "instance manager", func() bool {
		ctx, cancel := context.WithTimeout(b.t.Context(), time.Second)
		defer cancel()
		_, err := b.client.VersionGet(ctx)
		return err == nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { relayclient.Keep(ctx, b.client.Conn(), "test", b.witness.Relay(), 50*time.Millisecond, nil) })
	b.t.Cleanup(func() { cancel(); work.Wait() })
}

func (b *bed) devices() string { return filepath.Join(b.dir, "dev") }

// stopManager ends everything in order, and checks that no block device is left.
func (b *bed) stopManager() {
	if b.cmd.ProcessState != nil {
		return // it has been waited for already
	}
	_ = b.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(40*time.Second, func() { _ = b.cmd.Process.Kill() })
	defer kill.Stop()
	if err := b.cmd.Wait(); err != nil && !b.t.Failed() {
		b.t.Errorf("instance manager: %v", err)
	}
	if b.transport == "fuse-loop" {
		if err := blockdev.Sweep(context.Background(), b.devices()); err != nil {
			b.t.Errorf("block devices: %v", err)
		}
	}
}

func (b *bed) ctx() (context.Context, context.CancelFunc) {
	return context.WithTimeout(b.t.Context(), patience.Of(wait.Limit))
}

// environment is what the control plane gives to every instance.
func (b *bed) environment() map[string]string {
	return map[string]string{"ANKOLE_VOLUME_UUID": b.uuid, "ANKOLE_VOLUME_SECRET": b.secret,
		"ANKOLE_BLOCK_TRANSPORT": b.transport}
}

// startReplicas starts a generation of replicas of a build; each is ready when it returns.
func (b *bed) startReplicas(binary string) (names, addresses []string) {
	b.t.Helper()
	b.generation++
	for i, member := range b.members {
		name := fmt.Sprintf("demo-r-%d-%d", i, b.generation)
		args := []string{"--volume-name", volume, "replica", "/host/replicas/" + member, "--size",
			fmt.Sprint(volumeSize), "--replica-instance-name", name}
		if b.generation > 1 {
			args = append(args, "--standby")
		}
		b.create(&imrpc.ProcessSpec{Name: name, Binary: b.installed(binary), Args: args, PortCount: 10,
			PortArgs: []string{"--listen," + b.ip + ":"}, Environment: b.environment()})
		names = append(names, name)
	}
	for _, name := range names {
		addresses = append(addresses, "tcp://"+b.running(name))
	}
	return names, addresses
}

func (b *bed) create(spec *imrpc.ProcessSpec) {
	b.t.Helper()
	ctx, cancel := b.ctx()
	defer cancel()
	if _, err := b.client.ProcessCreate(ctx, spec); err != nil {
		b.t.Fatal(err)
	}
}

// running waits until a process is ready and returns its address.
func (b *bed) running(name string) string {
	b.t.Helper()
	var p *imrpc.ProcessResponse
	wait.Until(b.t, name+" is running", func() bool {
		ctx, cancel := b.ctx()
		defer cancel()
		var err error
		if p, err = b.client.ProcessGet(ctx, name); err != nil {
			b.t.Fatal(err)
		}
		if s := process.State(p.Status.State); s != process.Running && s != process.Starting {
			b.t.Fatalf("%s is %s: %s\n%s", name, s, p.Status.ErrorMsg, b.log(name))
		}
		return process.State(p.Status.State) == process.Running
	})
	return net.JoinHostPort(b.ip, fmt.Sprint(p.Status.PortStart))
}

// installed makes a build the engine of an image of the node.
func (b *bed) installed(binary string) string {
	b.t.Helper()
	image := fmt.Sprintf("%x", sha256.Sum256([]byte(binary)))
	folder := filepath.Join(b.dir, "bin", image)
	err := os.MkdirAll(folder, 0o755)
	if err == nil {
		err = os.Symlink(binary, filepath.Join(folder, "longhorn"))
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		b.t.Fatal(err)
	}
	return "/engine-binaries/" + image + "/longhorn"
}

// log is the end of a process's log.
func (b *bed) log(name string) string {
	text, err := os.ReadFile(filepath.Join(b.dir, "logs", name+".log"))
	if err != nil {
		return err.Error()
	}
	const most = 8 << 10
	return string(text[max(0, len(text)-most):])
}

func (b *bed) engineSpec(binary string, replicas []string, more ...string) *imrpc.ProcessSpec {
	args := []string{"--engine-instance-name", engineName, "--volume-name", volume, "controller", volume, "--frontend",
		"tgt-blockdev",
		"--size", fmt.Sprint(volumeSize), "--current-size", fmt.Sprint(volumeSize), "--engine-replica-timeout", "8"}
	args = append(args, more...)
	for _, r := range replicas {
		args = append(args, "--replica", r)
	}
	return &imrpc.ProcessSpec{Name: engineName, Binary: b.installed(binary), Args: args, PortCount: 1,
		PortArgs:    []string{"--listen," + b.ip + ":"},
		Environment: b.environment()}
}

// attach starts the volume from a build and returns what it is offered at.
func (b *bed) attach(binary string) (endpoint string) {
	b.t.Helper()
	names, addresses := b.startReplicas(binary)
	b.replicas = names
	b.create(b.engineSpec(binary, addresses))
	address := b.running(engineName)
	var state *enginev1.State
	wait.Until(b.t, "volume is offered", func() bool {
		state = b.state(address)
		return state.GetFrontendState() == "up"
	})
	return state.Endpoint
}

// state asks an engine for its state, nil if it does not answer.
func (b *bed) state(address string) *enginev1.State {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := b.ctx()
	defer cancel()
	s, err := enginev1.NewEngineClient(conn).Get(ctx, &enginev1.GetRequest{})
	if err != nil {
		slog.Debug("engine does not answer", "error", err)
		return nil
	}
	return s
}

// upgrade replaces all processes of the volume by those of another build.
func (b *bed) upgrade(binary string) {
	b.t.Helper()
	names, addresses := b.startReplicas(binary)
	ctx, cancel := b.ctx()
	defer cancel()
	p, err := b.client.ProcessReplace(ctx, b.engineSpec(binary, addresses, "--upgrade"))
	if err != nil {
		b.t.Fatalf("upgrade %d: %v\n%s", b.generation-1, err, b.log(engineName))
	}
	if s := process.State(p.Status.State); s != process.Running || p.Spec.Binary != b.installed(binary) {
		b.t.Fatalf("upgrade %d: engine of %s is %s: %s\n%s", b.generation-1, p.Spec.Binary, s, p.Status.ErrorMsg,
			b.log(engineName))
	}
	for _, name := range b.replicas {
		b.remove(name)
	}
	b.replicas = names
	s := b.state(net.JoinHostPort(b.ip, fmt.Sprint(p.Status.PortStart)))
	if n := rig.Modes(s)[enginev1.Mode_MODE_RW]; n != len(b.members) {
		b.t.Fatalf(
			"upgrade %d: %d of %d replicas are RW: %+v\n%s",
			b.generation-1,
			n,
			len(b.members),
			s,
			b.log(engineName),
		)
	}
}

// remove deletes a process and waits until it is gone.
func (b *bed) remove(name string) {
	b.t.Helper()
	ctx, cancel := b.ctx()
	defer cancel()
	if _, err := b.client.ProcessDelete(ctx, name, ""); err != nil {
		b.t.Fatal(err)
	}
	wait.Until(b.t, name+" is gone", func() bool {
		list, err := b.client.ProcessList(ctx)
		if err != nil {
			b.t.Fatal(err)
		}
		return list[name] == nil
	})
}

// detach ends the engine and then the replicas, and compares what they hold.
func (b *bed) detach() {
	b.t.Helper()
	b.remove(engineName)
	for _, name := range b.replicas {
		b.remove(name)
	}
	var first []rig.LayerHash
	for i, member := range b.members {
		c, err := rig.Content(filepath.Join(b.dir, "host", "replicas", member))
		if err != nil {
			b.t.Fatal(err)
		}
		if i == 0 {
			first = c
		} else if len(c) != len(first) || c[0] != first[0] {
			b.t.Errorf("replica %s differs from %s", member, b.members[0])
		}
	}
}
