package cluster

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"ankole.storage/standalone/statedir"
)

// progress prints how far the start has come.
type progress struct {
	mu    sync.Mutex
	w     io.Writer
	text  bool
	began time.Time
}

func newProgress(w io.Writer, text bool) *progress {
	return &progress{w: w, text: text, began: time.Now()}
}

func (p *progress) line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.text {
		_, _ = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

// step tells that something is ready, and when.
func (p *progress) step(what string) { p.line("  %5.1f s  %s", time.Since(p.began).Seconds(), what) }

// Ready is what the ready file and `--output json` say: all that a client needs.
type Ready struct {
	Ready          bool    `json:"ready"`
	PID            int     `json:"pid"`
	Dir            string  `json:"dir"`
	Kubeconfig     string  `json:"kubeconfig"`
	KubeAPI        string  `json:"kubeAPI"`
	API            string  `json:"api"`       // empty without a manager
	TokenFile      string  `json:"tokenFile"` // has the token for it; empty without a manager
	LoginPage      string  `json:"loginPage"` // logs a browser in; empty without a manager
	Nodes          []Node  `json:"nodes"`
	StartupSeconds float64 `json:"startupSeconds"`
}

// Node in a Ready.
type Node struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	Root    string `json:"root"` // the host's / as Pods see it
	Devices string `json:"devices"`
}

// api is the address of the REST API, and of the web UI.
func (c *Cluster) api() string {
	return "http://" + net.JoinHostPort(host, strconv.Itoa(c.cfg.APIPort))
}

// announce tells people and programs that the cluster is ready.
func (c *Cluster) announce() error {
	r := Ready{
		Ready: true, PID: os.Getpid(), Dir: c.dir.Path(), Kubeconfig: c.dir.Path("kubeconfig"),
		KubeAPI:        "https://" + net.JoinHostPort(host, strconv.Itoa(c.ports.kube)),
		StartupSeconds: time.Since(c.out.began).Seconds(),
	}
	if c.manager {
		r.API, r.TokenFile, r.LoginPage = c.api(), c.dir.Path(tokenFile), c.dir.Path(pageFile)
	}
	for k := 1; k <= c.cfg.Nodes; k++ {
		r.Nodes = append(r.Nodes, Node{
			Name: nodeName(k), Address: c.cfg.nodeAddress(k),
			Root: c.dir.Path("nodes", nodeName(k), "root"), Devices: c.cfg.deviceDir(c.dir.Path(), k),
		})
	}
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("ready file: %w", err)
	}
	data = append(data, '\n')
	if c.cfg.ReadyFile != "" {
		if err := statedir.WriteFile(c.cfg.ReadyFile, data, 0o644); err != nil {
			return fmt.Errorf("ready file: %w (see --ready-file)", err)
		}
	}
	if c.cfg.Output == "json" {
		_, err := c.out.w.Write(data)
		return err
	}
	c.tell(&r)
	return nil
}

// tell shows a person what there is, and how to begin.
func (c *Cluster) tell(r *Ready) {
	c.out.line("ready in %.1f s", r.StartupSeconds)
	c.out.line("")
	if r.API != "" {
		c.out.line("  web UI       open %s in a browser: it logs in", r.LoginPage)
		c.out.line("  REST API     %s/v1  (asks for the token in %s; setting api-anonymous-access)", r.API, r.TokenFile)
	}
	c.out.line("  Kubernetes   %s", r.KubeAPI)
	c.out.line("  kubeconfig   %s", r.Kubeconfig)
	c.out.line("  logs         %s", c.dir.Path("logs"))
	c.out.line("")
	c.out.line("Try next:")
	c.out.line("  export KUBECONFIG=%s", r.Kubeconfig)
	c.out.line("  kubectl get nodes,pods -A")
	if r.API != "" {
		c.out.line("  export ANKOLE_TOKEN_FILE=%s", r.TokenFile)
		c.out.line("  ankole volume create demo --size 1Gi --replicas 3")
		c.out.line("  curl -H @%s %s/v1/volumes", c.dir.Path(headerFile), r.API)
	}
	c.out.line("Stop with Ctrl-C.")
}
