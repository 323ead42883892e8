package e2e

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"

	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/test/wait"
)

// operator does operations on the engine of a volume that is attached with three replicas in sync.
type operator struct {
	t   *testing.T
	c   *cluster
	ctx context.Context
	engineclient.EngineClient
	target engineclient.Target
}

// everyOperation does each operation of EngineClient, by whichever way the engine's instance
// manager offers.
func everyOperation(t *testing.T, c *cluster, volume string) {
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	client, target := c.engineClient(volume)
	o := &operator{t, c, ctx, client, target}
	v, err := o.Version(ctx, target)
	if o.must("version", err); v.CLIAPIVersion == 0 || v.DataFormatVersion == 0 {
		t.Errorf("version %+v", v)
	}
	s := o.await("three replicas in sync", func(s engineclient.State) bool {
		return s.Volume == volume && s.FrontendUp && len(s.Replicas) == 3 && s.Replicas[0].Mode == "RW" &&
			s.Replicas[1].Mode == "RW" && s.Replicas[2].Mode == "RW"
	})
	replica := s.Replicas[2].Address
	o.identity()
	o.snapshots(replica)
	o.frontend()
	o.clone()
	o.must("expand to the present size", o.Expand(ctx, target, s.SizeBytes))
	if err := o.Expand(ctx, target, s.SizeBytes/2); err == nil {
		t.Error("the volume was made smaller")
	}
	seen := 0
	watch, stop := context.WithCancel(ctx)
	err = o.Watch(watch, target, func(engineclient.State) { seen++; stop() })
	if !errors.Is(err, engineclient.ErrUnavailable) || seen == 0 {
		t.Errorf("watch: %d states, %v", seen, err)
	}
	o.replicas(replica)
}

func (o *operator) must(what string, err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatalf("%s: %v", what, err)
	}
}

// await waits for a state of the engine.
func (o *operator) await(what string, holds func(engineclient.State) bool) (s engineclient.State) {
	o.t.Helper()
	o.c.eventually(what, func(ctx context.Context) (err error) {
		if s, err = o.Get(ctx, o.target); err == nil && !holds(s) {
			err = fmt.Errorf("state %+v", s)
		}
		return err
	})
	return s
}

// identity: an engine of another name or volume refuses.
func (o *operator) identity() {
	stranger := o.target
	stranger.Volume = "other"
	if err := o.SnapshotPurge(o.ctx, stranger, true); !errors.Is(err, engineclient.ErrPrecondition) {
		o.t.Errorf("an engine of another volume: %v", err)
	}
}

// snapshots leaves snapshot s2.
func (o *operator) snapshots(replica string) {
	has := func(s engineclient.State, name string) bool { _, ok := s.Snapshots[name]; return ok }
	for _, name := range []string{"s1", "s2"} {
		got, err := o.SnapshotCreate(o.ctx, o.target,
			engineclient.SnapshotRequest{Name: name, Labels: map[string]string{"of": "the test"}, UserCreated: true})
		if o.must("snapshot", err); got != name {
			o.t.Errorf("snapshot %s is called %q", name, got)
		}
	}
	s := o.await("snapshot s2", func(s engineclient.State) bool { return has(s, "s2") })
	if p := s.Snapshots["s2"]; p.Parent != "s1" || p.Labels["of"] != "the test" || !p.UserCreated || p.Created == "" {
		o.t.Errorf("snapshot %+v", p)
	}
	o.must("hash", o.SnapshotHash(o.ctx, o.target, "s2", false))
	o.c.eventually("checksums of s2 on three replicas", func(ctx context.Context) error {
		h, err := o.SnapshotHashStatus(ctx, o.target, "s2")
		if err == nil && (len(h) != 3 || h[replica].State != "complete" || h[replica].Checksum == "") {
			err = fmt.Errorf("%+v", h)
		}
		return err
	})
	if _, err := o.SnapshotHashStatus(o.ctx, o.target, "none"); !errors.Is(err, engineclient.ErrNotFound) {
		o.t.Errorf("checksums of no snapshot: %v", err)
	}
	o.must("remove s1", o.SnapshotRemove(o.ctx, o.target, "s1"))
	if err := o.SnapshotRemove(o.ctx, o.target, "none"); !errors.Is(err, engineclient.ErrNotFound) {
		o.t.Errorf("remove no snapshot: %v", err)
	}
	o.must("purge", o.SnapshotPurge(o.ctx, o.target, true))
	o.await("s1 gone, no purge under way", func(s engineclient.State) bool {
		for _, r := range s.Replicas {
			if r.Purge != nil && r.Purge.Running {
				return false
			}
		}
		return !has(s, "s1") && has(s, "s2")
	})
}

// frontend: options, and a revert with the frontend down.
func (o *operator) frontend() {
	yes, no := true, false
	o.must("options", o.OptionsSet(o.ctx, o.target, engineclient.Options{UnmapMarkSnapChainRemoved: &yes}))
	o.await("option set", func(s engineclient.State) bool {
		return s.Options.UnmapMarkSnapChainRemoved != nil && *s.Options.UnmapMarkSnapChainRemoved
	})
	o.must("options", o.OptionsSet(o.ctx, o.target, engineclient.Options{UnmapMarkSnapChainRemoved: &no}))
	if err := o.SnapshotRevert(o.ctx, o.target, "s2"); !errors.Is(err, engineclient.ErrPrecondition) {
		o.t.Errorf("revert under a frontend: %v", err)
	}
	o.must("frontend down", o.FrontendShutdown(o.ctx, o.target))
	o.await("frontend down", func(s engineclient.State) bool { return !s.FrontendUp })
	o.must("revert", o.SnapshotRevert(o.ctx, o.target, "s2"))
	o.must("frontend up", o.FrontendStart(o.ctx, o.target, "tgt-blockdev"))
	o.await("frontend up", func(s engineclient.State) bool { return s.FrontendUp && s.Endpoint != "" })
	if err := o.FrontendStart(o.ctx, o.target, "tgt-nonsense"); err == nil {
		o.t.Error("a frontend that does not exist was started")
	}
}

// clone fills a volume on another node with snapshot s2, which the revert of frontend has made the
// volume's content.
func (o *operator) clone() {
	name := o.target.Volume + "-clone"
	source := o.await("frontend up", func(s engineclient.State) bool { return s.FrontendUp })
	o.c.create(name, source.SizeBytes, 2)
	defer o.c.remove(name)
	o.c.attach(name, "node-2", 2)
	_, target := o.c.engineClient(name)
	if err := o.SnapshotClone(o.ctx, target, o.target, "s2"); !errors.Is(err, engineclient.ErrPrecondition) {
		o.t.Errorf("clone under a frontend: %v", err)
	}
	o.must("frontend down", o.FrontendShutdown(o.ctx, target))
	if err := o.SnapshotClone(o.ctx, target, o.target, "none"); !errors.Is(err, engineclient.ErrNotFound) {
		o.t.Errorf("clone of no snapshot: %v", err)
	}
	o.must("clone", o.SnapshotClone(o.ctx, target, o.target, "s2"))
	o.c.eventually("the clone is complete", func(ctx context.Context) error {
		s, err := o.SnapshotCloneStatus(ctx, target)
		if err == nil && (s.Running || s.State != "complete" || s.Snapshot != "s2") {
			err = fmt.Errorf("%+v", s)
		}
		return err
	})
	o.must("frontend up", o.FrontendStart(o.ctx, target, "tgt-blockdev"))
	var cloned engineclient.State
	o.c.eventually("frontend of the clone up", func(ctx context.Context) (err error) {
		if cloned, err = o.Get(ctx, target); err == nil && (!cloned.FrontendUp || cloned.Endpoint == "") {
			err = fmt.Errorf("state %+v", cloned)
		}
		return err
	})
	want, empty := hashDevice(o.t, o.c, source.Endpoint), sha256.Sum256(make([]byte, 32*mib))
	if got := hashDevice(o.t, o.c, cloned.Endpoint); got != want || got == empty {
		wait.Final(o.t, "the content of a clone")
		o.t.Errorf("the clone's checksum is %x, the source's %x, of nothing %x", got, want, empty)
	}
	o.c.detach(name)
	o.c.identical(name, 2)
}

// replicas takes one out of the engine's set and back. The controllers see that it is lost and
// bring it back themselves, for which they may start its process again, at another address: adding
// it fails as long as the process is not there, and the replica is in sync some time later, whoever
// was first.
func (o *operator) replicas(replica string) {
	o.must("verify rebuild", o.ReplicaVerifyRebuild(o.ctx, o.target, replica))
	if err := o.ReplicaVerifyRebuild(o.ctx, o.target, "127.0.0.1:1"); !errors.Is(err, engineclient.ErrPrecondition) {
		o.t.Errorf("a replica that does not exist is verified: %v", err)
	}
	before, err := o.Get(o.ctx, o.target)
	o.must("state", err)
	_, err = o.ReplicaRemove(o.ctx, o.target, replica)
	o.must("remove replica", err)
	o.c.eventually("the replica is back in sync", func(ctx context.Context) error {
		s, err := o.Get(ctx, o.target)
		if err != nil {
			return err
		}
		if inSync(s) == inSync(before) {
			return nil
		}
		_, err = o.ReplicaAdd(ctx, o.target, replica)
		return fmt.Errorf("state %+v, added: %v", s, err)
	})
}

// inSync counts the replicas in sync.
func inSync(s engineclient.State) (n int) {
	for _, r := range s.Replicas {
		if r.Mode == engineclient.ModeRW {
			n++
		}
	}
	return n
}
