package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// startWait bounds containerd's start; it reads what it has of images.
	startWait = 60 * time.Second
	// stopWait is what processes of a node have to end by themselves when it is shut down.
	stopWait = 10 * time.Second
	pollWait = 50 * time.Millisecond
	// kubelet is started again so many times, after againWait each.
	kubeletAgain = 20
	againWait    = time.Second
)

// Run is the first process of a node. It returns when the node was told to shut down, or one of its
// parts has ended.
func Run() error {
	var cfg Config
	// The bed writes it when the interfaces are there; an end of the input is the bed's end.
	if err := json.NewDecoder(os.Stdin).Decode(&cfg); err != nil {
		return fmt.Errorf("node's configuration: %w", err)
	}
	if os.Getpid() != 1 {
		return errors.New("a node is the first process of a PID namespace: it is started by the bed")
	}
	stop, chld := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	signal.Notify(chld, syscall.SIGCHLD)
	f := newFamily()
	go f.reap(chld)
	if err := unix.Sethostname([]byte(cfg.Name)); err != nil {
		return fmt.Errorf("host name: %w", err)
	}
	for _, step := range []func(Config) error{makeView, setUpNetwork, configurePodNetwork, writeConfigs} {
		if err := step(cfg); err != nil {
			return err
		}
	}
	stopping := make(chan struct{})
	ended, err := f.startAll(cfg, stopping)
	if err != nil {
		return err
	}
	select {
	case err := <-ended:
		return err
	case <-stop:
		close(stopping)
		shutDown()
		return nil
	}
}

// startAll starts the node's programs in their order. One that ends ends the node, but for kubelet:
// it ends if containerd is busy yet with what it had before, and is started again a few times, as
// an init system does.
func (f *family) startAll(cfg Config, stopping <-chan struct{}) (<-chan error, error) {
	log := func(name string) string { return filepath.Join(cfg.Dir, name+".log") }
	if err := f.run(log("mount"), "mount", "-o", "loop", cfg.Disk, "/var/lib/longhorn"); err != nil {
		return nil, fmt.Errorf("the node's disk: %w", err)
	}
	if err := unix.Mount("", "/var/lib/longhorn", "", unix.MS_SHARED, ""); err != nil {
		return nil, fmt.Errorf("the node's disk: %w", err)
	}
	ended := make(chan error, 3)
	begin := func(again int, name string, argv ...string) error {
		_, end, err := f.start(log(name), argv...)
		if err != nil {
			return err
		}
		go func() {
			for {
				status := (<-end).ExitStatus()
				if again--; again < 0 {
					ended <- fmt.Errorf("%s ended with status %d; see %s", name, status, log(name))
					return
				}
				select {
				case <-stopping:
					return
				case <-time.After(againWait):
				}
				if _, end, err = f.start(log(name), argv...); err != nil {
					ended <- err
					return
				}
			}
		}()
		return nil
	}
	if err := begin(0, "containerd", "containerd", "--config", filepath.Join(cfg.Dir, containerdFile)); err != nil {
		return nil, err
	}
	if err := awaitSocket(ContainerdSocket, ended); err != nil {
		return nil, err
	}
	if err := f.run(log("ctr"), "ctr", "-n", "k8s.io", "images", "import", cfg.PauseImage); err != nil {
		return nil, fmt.Errorf("the pause image: %w", err)
	}
	if err := begin(kubeletAgain, "kubelet", cfg.Program, "kubelet", "--config", filepath.Join(cfg.Dir, kubeletFile),
		"--kubeconfig", cfg.KubeletKubeconfig, "--hostname-override", cfg.Name, "--node-ip", cfg.Address,
		"--root-dir", "/var/lib/kubelet"); err != nil {
		return nil, err
	}
	return ended, begin(0, "kube-proxy", cfg.Program, "kube-proxy", "--config", filepath.Join(cfg.Dir, proxyFile))
}

func awaitSocket(path string, ended <-chan error) error {
	deadline := time.After(startWait)
	tick := time.NewTicker(pollWait)
	defer tick.Stop()
	for {
		if c, err := net.Dial("unix", path); err == nil {
			return c.Close()
		}
		select {
		case err := <-ended:
			return err
		case <-deadline:
			return fmt.Errorf("%s does not answer within %v", path, startWait)
		case <-tick.C:
		}
	}
}

// shutDown asks every process of the node to end, as a machine does that is shut down in order.
func shutDown() {
	_ = syscall.Kill(-1, syscall.SIGTERM)
	deadline := time.After(stopWait)
	tick := time.NewTicker(pollWait)
	defer tick.Stop()
	for {
		// Signal 0 to all but this process: an error means that there is none.
		if errors.Is(syscall.Kill(-1, 0), syscall.ESRCH) {
			return
		}
		select {
		case <-deadline:
			return
		case <-tick.C:
		}
	}
}
