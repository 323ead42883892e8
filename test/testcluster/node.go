package testcluster

import (
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"ankole.storage/host/listener"
)

// commandTimeout is above the longest Pod termination that a node stop waits for.
const commandTimeout = 60 * time.Second

// NodeName is the name of node k, counted from 1.
func NodeName(k int) string { return "node-" + strconv.Itoa(k) }

// KillNode loses node k as in a power failure: every process of its Pods gets SIGKILL, and its
// agent falls silent. The API notices when the node's lease has expired.
func (c *Cluster) KillNode(t testing.TB, k int) { t.Helper(); c.command(t, "node-kill", k) }

// StopNode ends the Pods of node k with their grace and then the node; they stay in the API.
func (c *Cluster) StopNode(t testing.TB, k int) { t.Helper(); c.command(t, "node-stop", k) }

// HangNode has a node's kubelet neither start nor end anything until ResumeNode: its containers run
// on.
func (c *Cluster) HangNode(t testing.TB, k int) { t.Helper(); c.command(t, "node-hang", k) }

// ResumeNode ends HangNode.
func (c *Cluster) ResumeNode(t testing.TB, k int) { t.Helper(); c.command(t, "node-resume", k) }

// StartNode brings a lost or stopped node back.
func (c *Cluster) StartNode(t testing.TB, k int) { t.Helper(); c.command(t, "node-start", k) }

func (c *Cluster) command(t testing.TB, command string, k int) {
	t.Helper()
	c.Permit(t, Restarts+".* node="+NodeName(k)+" ")
	if err := c.request(command, NodeName(k)); err != nil {
		t.Fatalf("%s %s: %v", command, NodeName(k), err)
	}
}

// request sends one command to the control socket of the cluster's folder.
func (c *Cluster) request(command, node string) error {
	path, release, err := listener.Reach(filepath.Join(c.Dir, "control.sock"))
	if err != nil {
		return err
	}
	defer release()
	conn, err := net.Dial("unix", path)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(commandTimeout))
	if err := json.NewEncoder(conn).Encode(map[string]string{"command": command, "node": node}); err != nil {
		return err
	}
	var resp struct {
		OK    bool   `json:"ok"`
		Error string `json:"error"`
	}
	if err := json.NewDecoder(conn).Decode(&resp); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	if !resp.OK {
		return fmt.Errorf("refused: %s", resp.Error)
	}
	return nil
}
