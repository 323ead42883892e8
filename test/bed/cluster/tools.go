package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"ankole.storage/standalone/statedir"
	"ankole.storage/test/bed/node"
	"ankole.storage/test/bed/plan"
)

// Ready is what the ready file says.
type Ready struct {
	PID            int     `json:"pid"`
	Dir            string  `json:"dir"`
	Kubeconfig     string  `json:"kubeconfig"`
	StartupSeconds float64 `json:"startupSeconds"`
}

// announce tells people and programs that the bed is ready.
func (b *Bed) announce() error {
	r := Ready{PID: os.Getpid(), Dir: b.cfg.Dir, Kubeconfig: b.cfg.Path("kubeconfig"),
		StartupSeconds: time.Since(b.began).Seconds()}
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("ready file: %w", err)
	}
	if b.cfg.ReadyFile != "" {
		if err := statedir.WriteFile(b.cfg.ReadyFile, append(data, '\n'), 0o600); err != nil {
			return fmt.Errorf("ready file: %w", err)
		}
	}
	_, err = fmt.Fprintf(b.out, `ready in %.1f s

  export KUBECONFIG=%s
  kubectl get nodes,pods -A            (or: %s kubectl …)
  %[3]s enter --dir %s node-1          a shell in a node
  %[3]s load --dir %[4]s IMAGE.tar     an image for every node
  %[3]s node --dir %[4]s kill node-2   also: stop, start
  logs in %[4]s/logs and %[4]s/nodes/*/*.log
`, r.StartupSeconds, r.Kubeconfig, b.program, b.cfg.Dir)
	return err
}

// PID is the first process of node k, as the machine numbers it.
func PID(p plan.Plan, k int) (int, error) {
	text, err := os.ReadFile(p.NodePath(k, pidFile))
	if err != nil {
		return 0, fmt.Errorf("node %s does not run: %w", p.NodeName(k), err)
	}
	return strconv.Atoi(string(bytes.TrimSpace(text)))
}

// Inside is a command that runs in node k.
func Inside(ctx context.Context, p plan.Plan, k int, argv ...string) (*exec.Cmd, error) {
	pid, err := PID(p, k)
	if err != nil {
		return nil, err
	}
	args := append([]string{"--target", strconv.Itoa(pid), "--mount", "--net", "--uts", "--ipc", "--pid", "--"}, argv...)
	return exec.CommandContext(ctx, "nsenter", args...), nil
}

// Load gives every node images from archives.
func Load(ctx context.Context, p plan.Plan, archives []string) error {
	errs := make([]error, p.Nodes)
	var wg sync.WaitGroup
	for k := 1; k <= p.Nodes; k++ {
		wg.Go(func() {
			for _, a := range archives {
				errs[k-1] = errors.Join(errs[k-1], load(ctx, p, k, a))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// load gives a node one archive; by its standard input, since the node may see other files.
func load(ctx context.Context, p plan.Plan, k int, archive string) error {
	f, err := os.Open(archive)
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	defer func() { _ = f.Close() }()
	cmd, err := Inside(ctx, p, k, "ctr", "--address", node.ContainerdSocket, "-n", "k8s.io", "images", "import", "-")
	if err != nil {
		return err
	}
	cmd.Stdin = f
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("image %s for %s: %w: %s", archive, p.NodeName(k), err, out)
	}
	return nil
}
