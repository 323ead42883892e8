package plan

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

func valid(t *testing.T) Plan {
	t.Helper()
	p, err := Plan{Dir: "/srv/bed", Nodes: MaxNodes, Network: "10.213.0.0"}.Validate()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestRefusals(t *testing.T) {
	for name, p := range map[string]Plan{
		"no nodes":        {Dir: "/srv/bed", Network: "10.213.0.0"},
		"too many nodes":  {Dir: "/srv/bed", Nodes: MaxNodes + 1, Network: "10.213.0.0"},
		"a host address":  {Dir: "/srv/bed", Nodes: 3, Network: "10.213.0.1"},
		"no address":      {Dir: "/srv/bed", Nodes: 3, Network: "bed"},
		"IPv6":            {Dir: "/srv/bed", Nodes: 3, Network: "fd00::"},
		"a hidden folder": {Dir: "/var/lib/bed", Nodes: 3, Network: "10.213.0.0"},
	} {
		if _, err := p.Validate(); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLinks: a folder has one name, whichever links lead there, and a link does not show a hidden
// folder.
func TestLinks(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"link": dir, "hidden": "/var"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, below := range []string{".", "new/bed"} {
		p, err := Plan{Dir: filepath.Join(dir, "link", below), Nodes: 1, Network: "10.213.0.0"}.Validate()
		if want := filepath.Join(dir, below); err != nil || p.Dir != want {
			t.Errorf("%s, want %s (%v)", p.Dir, want, err)
		}
	}
	p := Plan{Dir: filepath.Join(dir, "hidden/new/bed"), Nodes: 1, Network: "10.213.0.0"}
	if p, err := p.Validate(); !errors.Is(err, ErrConfig) {
		t.Errorf("%s: %v", p.Dir, err)
	}
}

// TestNamesDiffer: no two things of a bed share a name or an address, and interfaces have names
// that the kernel takes.
func TestNamesDiffer(t *testing.T) {
	p := valid(t)
	seen := map[string]bool{}
	once := func(s string) {
		t.Helper()
		if seen[s] {
			t.Errorf("%s is there twice", s)
		}
		seen[s] = true
	}
	pods, segment := netip.MustParsePrefix(p.PodNetworks()), ""
	once(p.Host())
	for k := 1; k <= p.Nodes; k++ {
		for _, s := range []string{p.NodeName(k), p.NodeAddress(k), p.PodNetwork(k), p.NodePath(k), p.NodeCgroup(k),
			p.Veth(k, false), p.Veth(k, true)} {
			once(s)
		}
		var first, last string
		segment, first, last = p.Storage(k)
		once(first)
		once(last)
		inside := netip.MustParsePrefix(segment)
		if !inside.Contains(netip.MustParseAddr(first)) || !inside.Contains(netip.MustParseAddr(last)) ||
			inside.Overlaps(pods) {
			t.Errorf("node %d: storage addresses %s to %s, segment %s", k, first, last, segment)
		}
		if own := netip.MustParsePrefix(p.PodNetwork(k)); !pods.Overlaps(own) ||
			own.Contains(netip.MustParseAddr(p.NodeAddress(k))) {
			t.Errorf("node %d: Pods in %s, node %s", k, own, p.NodeAddress(k))
		}
		for _, s := range []string{p.Bridge(), p.StorageBridge(), p.Veth(k, false), p.Veth(k, true)} {
			if len(s) > 15 {
				t.Errorf("interface %s: the kernel takes 15 characters", s)
			}
		}
	}
	other := p
	other.Dir = "/srv/other"
	if other.ID() == p.ID() {
		t.Error("two folders give one identity")
	}
}
