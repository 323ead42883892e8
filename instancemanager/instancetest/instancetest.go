// Package instancetest lets a test binary play the instances its tests start.
//
// A test package calls Main first thing in its TestMain and starts processes with Binary, a Mode as
// first argument and Environment. They are real processes: they listen, answer health checks,
// ignore signals and die.
package instancetest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/host/patience"
	"ankole.storage/test/wait"
)

// Modes: what an instance does.
const (
	// Serve answers SERVING at --listen and exits 0 on SIGINT.
	Serve = "serve"
	// Unhealthy answers NOT_SERVING at --listen and exits 0 on SIGINT.
	Unhealthy = "unhealthy"
	// NeverListens listens nowhere and exits 0 on SIGINT.
	NeverListens = "never-listens"
	// Stubborn answers SERVING at --listen and ignores SIGINT and SIGHUP.
	Stubborn = "stubborn"
	// Unclean answers SERVING at --listen and exits 3 on SIGINT.
	Unclean = "unclean"
	// Parent is Serve with a child process of its own that ignores SIGINT; it prints "child PID".
	Parent = "parent"
	// Stray is Parent with a child that has left the process group.
	Stray = "stray"
	// Exit ends at once with the status of --status.
	Exit = "exit"
	// Env prints its environment, one variable a line, and waits like NeverListens.
	Env = "env"
	// Echo prints "ready", and the name of each signal: hangup, and interrupt, which ends it with
	// status 0.
	Echo = "echo"
	// Print prints --count lines "line 0", "line 1"… and waits like NeverListens.
	Print = "print"
)

const marker = "ANKOLE_TEST_INSTANCE"

// Environment makes the test binary an instance.
func Environment() map[string]string { return map[string]string{marker: "1"} }

// Binary is the test binary.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Engine and NextEngine are the engines of two images, as an instance manager sees them.
const (
	Engine     = "/engine-binaries/test/longhorn"
	NextEngine = "/engine-binaries/next/longhorn"
)

// Installed makes the test binary those engines, and returns the variable that says where they are,
// and where other folders of the Pod are: pairs of a path and its place.
func Installed(t testing.TB, more ...string) (mounts string) {
	t.Helper()
	dir := t.TempDir()
	for _, image := range []string{"test", "next"} {
		err := os.Mkdir(filepath.Join(dir, image), 0o755)
		if err == nil {
			err = os.Symlink(Binary(t), filepath.Join(dir, image, "longhorn"))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	mounts = fmt.Sprintf("ANKOLE_MOUNTS={%q:%q", "/engine-binaries", dir)
	for i := 0; i+1 < len(more); i += 2 {
		mounts += fmt.Sprintf(",%q:%q", more[i], more[i+1])
	}
	return mounts + "}"
}

// Spec asks for an instance with ports (0 or more) at host.
func Spec(t testing.TB, name, mode string, host string, ports int, args ...string) *imrpc.ProcessSpec {
	t.Helper()
	s := &imrpc.ProcessSpec{Name: name, Binary: Binary(t), Args: append([]string{mode}, args...),
		PortCount: int32(ports), Environment: Environment()}
	if ports > 0 {
		s.PortArgs = []string{"--listen," + host + ":"}
	}
	return s
}

// Main returns at once in a test process, and never in an instance.
func Main() {
	if os.Getenv(marker) != "" {
		if err := run(os.Args[1], os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

func run(mode string, args []string) error {
	flags := flag.NewFlagSet(mode, flag.ContinueOnError)
	listen := flags.String("listen", "", "")
	status := flags.Int("status", 0, "")
	count := flags.Int("count", 0, "")
	flags.Bool("upgrade", false, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	interrupt := make(chan os.Signal, 4)
	signal.Notify(interrupt, syscall.SIGINT, syscall.SIGHUP)
	serving := healthpb.HealthCheckResponse_SERVING
	switch mode {
	case Exit:
		os.Exit(*status)
	case NeverListens:
		<-interrupt
		return nil
	case Env:
		fmt.Println(strings.Join(os.Environ(), "\n"))
		<-interrupt
		return nil
	case Echo:
		fmt.Println("ready")
		for sig := range interrupt {
			fmt.Println(sig)
			if sig == syscall.SIGINT {
				return nil
			}
		}
	case Print:
		for i := range *count {
			fmt.Println("line", i)
		}
		<-interrupt
		return nil
	case Unhealthy:
		serving = healthpb.HealthCheckResponse_NOT_SERVING
	case Parent, Stray:
		child := exec.Command("/proc/self/exe", Stubborn, "--listen", "127.0.0.1:0")
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: mode == Stray}
		if err := child.Start(); err != nil {
			return err
		}
		fmt.Println("child", child.Process.Pid)
	}
	if *listen == "" {
		return errors.New("--listen is missing")
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", *listen)
	if err != nil {
		return err
	}
	h := health.NewServer()
	h.SetServingStatus("", serving)
	s := grpc.NewServer()
	healthpb.RegisterHealthServer(s, h)
	go func() {
		for range interrupt {
			switch mode {
			case Stubborn:
				continue
			case Unclean:
				os.Exit(3)
			}
			s.Stop()
		}
	}()
	return s.Serve(l)
}

// Host returns a loopback address (of 127.32.0.0 to 127.95.255.255) that nobody else is likely to
// use, so that tests with fixed ports run beside each other and beside other runs of themselves.
func Host() string {
	return fmt.Sprintf("127.%d.%d.%d", 32+rand.IntN(64), rand.IntN(256), 1+rand.IntN(254))
}

// Deadline is a time for the parts of an instance manager that is not reached: a test that waits
// for something else gives up before.
var Deadline = patience.Of(2 * wait.Limit)

// Alive says whether a process with this number exists and is no zombie.
func Alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, rest, ok := strings.Cut(string(stat), ") ")
	return ok && !strings.HasPrefix(rest, "Z")
}
