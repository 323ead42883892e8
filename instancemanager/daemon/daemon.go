// Package daemon is the instance manager as a program: flags and environment into one Config, and
// Run, which owns everything from the first listener to the last instance.
package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"

	"google.golang.org/grpc"

	"ankole.storage/dataplane/device/keeper"
	"ankole.storage/host/hostpath"
	"ankole.storage/host/listener"
	"ankole.storage/instancemanager/enginebinary"
	"ankole.storage/instancemanager/process"
	"ankole.storage/instancemanager/proxy"
	"ankole.storage/instancemanager/server"
	"ankole.storage/instancemanager/witness"
)

// Run serves until ctx ends or a server fails, stops all instances and returns. A nil error is an
// orderly stop. level is that of log, for managers to change.
func Run(ctx context.Context, cfg Config, log *slog.Logger, level *slog.LevelVar) error {
	ports, err := cfg.validate()
	if err != nil {
		return err
	}
	listeners, err := cfg.listen(ctx, 0, server.ProxyPort, server.InstancePort)
	if err != nil {
		return err
	}
	defer closeAll(listeners)
	socket := cmp.Or(cfg.WitnessSocket, cfg.defaultSocket(listeners[0].Addr()))
	// Instances are told the Pod's path and resolve it themselves.
	witnessListener, err := witness.ListenUnix(ctx, hostpath.Resolve(socket))
	if err != nil {
		return err
	}
	defer witnessListener.Close()
	devices, err := listenDevices(hostpath.Resolve(keeperSocket(socket)))
	if err != nil {
		return err
	}
	defer devices.Close()
	keeping, release := context.WithCancel(context.WithoutCancel(ctx))
	left := newLeftovers(hostpath.Resolve(deviceDir), log)
	defer left.close()
	kept := keeper.NewServer(log, 0).WithSecond(hostpath.Resolve(keeper.SecondSocket)).WithEnded(left.removeOf)
	certificates := cfg.certificates(log)
	processes, err := process.New(process.Config{
		Gone:         func(name string) { endDevice(name, kept, left) },
		Kept:         kept.HeldElsewhere,
		EnginesEnded: release, // the next ones wait for their devices
		LogsDir:      hostpath.Resolve(cfg.LogsDir), Binaries: binariesDirs,
		Output: cfg.Output,
		Ports:  ports, PodIP: cfg.PodIP,
		Environment:  cfg.instanceEnvironment(socket),
		Certificates: certificates,
		Owner:        cfg.owner(listeners[0].Addr()),
		Resolve:      hostpath.Resolve,
		Log:          log,
	})
	if err != nil {
		return err
	}
	left.run(processes.List)
	relay, systems := witness.NewRelay(log), newFileSystems(log)
	binaries := enginebinary.New(binariesDirs, hostpath.Resolve)
	engines := &proxy.Engines{Systems: systems, Binary: binaries, Certificates: certificates, Log: log}
	defer engines.Close()
	s, secure := &servers{log: log, failed: make(chan error, 1)}, certificates.OrderServer()
	s.serve(server.New(secure, server.Processes(processes, cfg.PodName), relay.RegisterRelay), listeners[0])
	s.serve(server.NewWith(engines.ServerOptions(), secure, engines.Register, binaries.Register), listeners[1])
	s.serve(server.New(secure, server.Instances(processes, level)), listeners[2])
	cfg.serveWitness(s, relay, witnessListener)
	s.keep(func(context.Context) { kept.Serve(keeping, devices) }, certificates.Keep, systems.readOnly(processes, log).Run,
		systems.thawLeft)
	log.Info("instance manager serves", "address", listeners[0].Addr(), "proxy", listeners[1].Addr(), "instances",
		listeners[2].Addr(), "pod", cfg.PodName, "ports", ports, "witness", socket)

	err = s.wait(ctx)
	// The servers go on until the last instance has ended: an engine may need the witness, a
	// manager wants the events.
	err = errors.Join(err, processes.Close(context.WithoutCancel(ctx)))
	s.stop()
	log.Info("instance manager has stopped")
	return err
}

// serveWitness serves the engines here at l, and takes in the agent of this node to answer them.
// Without it the controllers do.
func (c *Config) serveWitness(s *servers, relay *witness.Relay, l net.Listener) {
	s.serve(server.New(nil, relay.RegisterWitness), l)
	if c.PodName == "" {
		return
	}
	path := witness.RelaySocket(c.PodName)
	l, err := witness.ListenRelay(hostpath.Resolve(path))
	if err != nil {
		s.log.Warn("the agent of this node cannot attach: engines ask the controllers; see that the host's directory of the "+
			"socket can be written", "socket", path, "err", err)
		return
	}
	s.serve(server.New(nil, relay.RegisterRelay), l)
}

// servers runs gRPC servers; one that ends takes the instance manager with it.
type servers struct {
	log     *slog.Logger
	running []*grpc.Server
	work    sync.WaitGroup
	failed  chan error
	cancel  context.CancelFunc // of what keep runs
}

func (s *servers) serve(server *grpc.Server, l net.Listener) {
	s.running = append(s.running, server)
	s.work.Add(1)
	go func() {
		defer s.work.Done()
		if err := server.Serve(l); err != nil {
			s.fail(fmt.Errorf("server at %s: %w", l.Addr(), err))
		}
	}()
}

// fail tells wait about the first failure.
func (s *servers) fail(err error) {
	select {
	case s.failed <- err:
	default:
	}
}

// keep runs what lasts until stop.
func (s *servers) keep(all ...func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	for _, run := range all {
		s.work.Go(func() { run(ctx) })
	}
}

// wait returns when ctx ends (nil) or a server fails.
func (s *servers) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		s.log.Info("instance manager stops all instances", "cause", context.Cause(ctx))
		return nil
	case err := <-s.failed:
		return err
	}
}

func (s *servers) stop() {
	for _, server := range s.running {
		server.Stop()
	}
	s.cancel()
	s.work.Wait()
}

// listen opens listeners as many ports above --listen as the offsets say: all of them or none.
func (c *Config) listen(ctx context.Context, offsets ...int) ([]net.Listener, error) {
	var opened []net.Listener
	for _, n := range offsets {
		addr, err := server.Neighbour(c.Listen, n)
		if err != nil {
			closeAll(opened)
			return nil, fmt.Errorf("--listen: %w", err)
		}
		l, err := server.Listen(ctx, addr, c.PodIP)
		if err != nil {
			closeAll(opened)
			return nil, err
		}
		opened = append(opened, l)
	}
	return opened, nil
}

// listenDevices opens the keeper's socket. What a killed instance manager left is replaced: the
// witness socket, which is held already, shows that no other one lives.
func listenDevices(path string) (l listener.Unix, err error) {
	if err := listener.RemoveStale(path); err != nil {
		return l, fmt.Errorf("socket for devices: %w", err)
	}
	return keeper.Listen(path)
}

func closeAll(listeners []net.Listener) {
	for _, l := range listeners {
		_ = l.Close() // closed already if a server has had it
	}
}

// NewLogger returns the logger of the program, text to w, and its level.
func NewLogger(w io.Writer, debug bool) (*slog.Logger, *slog.LevelVar) {
	level := &slog.LevelVar{}
	if debug {
		level.Set(slog.LevelDebug)
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})), level
}
