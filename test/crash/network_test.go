package crash

import (
	"bytes"
	"errors"
	"net"
	"testing"

	"ankole.storage/test/lack"
	"ankole.storage/test/rig"
)

// twoNetworks is a volume whose hosts have a storage network beside the one for management.
func twoNetworks(t *testing.T, replicas int, size int64) *rig.Volume {
	t.Helper()
	v, err := rig.Open(t, rig.Config{Replicas: replicas, Size: size, StorageNetwork: true})
	if errors.Is(err, rig.ErrNoNetwork) {
		lack.Skip(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// counts are the bytes that a host's interfaces carried.
type counts struct{ management, storage rig.Traffic }

func countsOf(t *testing.T, h *rig.Host) counts {
	t.Helper()
	return counts{h.Bytes(t, rig.ManagementInterface), h.Bytes(t, rig.StorageInterface)}
}

// during returns what each host's interfaces carried while f ran.
func during(t *testing.T, hosts []*rig.Host, f func()) map[*rig.Host]counts {
	t.Helper()
	before := map[*rig.Host]counts{}
	for _, h := range hosts {
		before[h] = countsOf(t, h)
	}
	f()
	out := map[*rig.Host]counts{}
	for _, h := range hosts {
		now := countsOf(t, h)
		out[h] = counts{now.management.Sub(before[h].management), now.storage.Sub(before[h].storage)}
		t.Logf("%-20s management in %9d out %9d, storage in %9d out %9d", h.Name, out[h].management.In,
			out[h].management.Out, out[h].storage.In, out[h].storage.Out)
	}
	return out
}

// carried requires that the management network carried next to nothing, and the storage network at
// least so much.
func (c counts) carried(t *testing.T, who string, in, out int64) {
	t.Helper()
	const nextToNothing = mib / 4 // questions about the state
	if got := c.management.In + c.management.Out; got > nextToNothing {
		t.Errorf("%s: %d bytes of data went over the management network", who, got)
	}
	if c.storage.In < in || c.storage.Out < out {
		t.Errorf("%s: the storage network carried %+v, want at least %d in and %d out", who, c.storage, in, out)
	}
}

func hostsOf(v *rig.Volume) []*rig.Host {
	hosts := []*rig.Host{v.Engine().Host}
	for _, r := range v.Replicas {
		hosts = append(hosts, r.Host)
	}
	return hosts
}

// TestC7: with a storage network, writes and reads go over it and nothing of them over the other
// one, on every host; questions to the engine go over the management network and not over it.
func TestC7(t *testing.T) {
	t.Parallel()
	const size = 32 * mib
	v := twoNetworks(t, 3, size)
	v.StartEngine()
	s, err := v.State()
	if err != nil {
		t.Fatal(err)
	}
	addresses := map[string]bool{}
	for _, r := range v.Replicas {
		addresses["tcp://"+net.JoinHostPort(r.Host.Storage, portOf(t, r.Addr))] = true
	}
	for _, r := range s.Replicas {
		if !addresses[r.Address] {
			t.Errorf("the engine has a replica at %s, want one of %v", r.Address, addresses)
		}
	}
	model := make([]byte, size)
	for i := range model {
		model[i] = byte(i>>9 + i*11 + 1)
	}
	c := v.Dial()
	engine := v.Engine().Host
	wrote := during(t, hostsOf(v), func() {
		for off := int64(0); off < size; off += mib {
			if _, err := c.WriteAt(model[off:off+mib], off); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
	})
	wrote[engine].carried(t, "engine, writing", 0, 3*size)
	for _, r := range v.Replicas {
		wrote[r.Host].carried(t, r.Name+", written to", size, 0)
	}
	read := during(t, hostsOf(v), func() { check(t, v, model) })
	read[engine].carried(t, "engine, reading", size, 0)
	for _, r := range v.Replicas {
		read[r.Host].carried(t, r.Name+", read from", 0, 0)
	}
	const questions = 500
	asked := during(t, []*rig.Host{engine}, func() {
		for range questions {
			if _, err := v.State(); err != nil {
				t.Fatal(err)
			}
		}
	})[engine]
	if asked.management.In < questions*10 || asked.management.Out < questions*100 {
		t.Errorf("%d questions to the engine: the management network carried %+v", questions, asked.management)
	}
	for _, r := range v.Replicas {
		if v.Listens(net.JoinHostPort(r.Host.Addr, portOf(t, r.Addr))) || !v.Listens(r.Addr) {
			t.Errorf("replica %s must listen on the storage network alone", r.Name)
		}
	}
	if v.Listens(net.JoinHostPort(engine.Storage, portOf(t, v.Addr))) || !v.Listens(v.Addr) {
		t.Error("the engine must listen on the management network alone")
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	v.StopEngine()
}

// TestC7Migration: while a volume migrates, what is read and written on the target's node goes over
// the storage network too: to the engine and back, and nothing of it over the other one. A later
// stand-in finds its way there as the first did.
func TestC7Migration(t *testing.T) {
	t.Parallel()
	const size = 16 * mib
	v := twoNetworks(t, 2, size)
	v.StartEngine()
	source := v.Engine()
	model := make([]byte, size)
	for round := range 2 {
		s := v.StandIn(v.EngineHosts[1], source)
		s.AwaitUp()
		if !v.Listens(net.JoinHostPort(source.Host.Storage, portOf(t, source.Addr))) {
			t.Error("the engine does not listen on the storage network beside a stand-in")
		}
		c, err := s.Target()
		if err != nil {
			t.Fatal(err)
		}
		for i := range model {
			model[i] = byte(i>>9 + i*17 + round)
		}
		wrote := during(t, []*rig.Host{source.Host, s.Host}, func() {
			for off := int64(0); off < size; off += mib {
				if _, err := c.WriteAt(model[off:off+mib], off); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.Flush(); err != nil {
				t.Fatal(err)
			}
		})
		wrote[s.Host].carried(t, "target's node, writing", 0, size)
		wrote[source.Host].carried(t, "source's node, written to", size, 2*size)
		got := make([]byte, size)
		read := during(t, []*rig.Host{source.Host, s.Host}, func() {
			for off := int64(0); off < size; off += mib {
				if _, err := c.ReadAt(got[off:off+mib], off); err != nil {
					t.Fatal(err)
				}
			}
		})
		if !bytes.Equal(got, model) {
			t.Error("the target's node reads something else than it has written")
		}
		read[s.Host].carried(t, "target's node, reading", size, 0)
		read[source.Host].carried(t, "source's node, read from", size, size)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		s.Kill()
	}
	check(t, v, model)
	v.StopEngine()
}

func portOf(t *testing.T, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// TestC11: a rebuild goes over the storage network, out of the replicas that are read from and into
// the new one; nothing of it over the management network.
func TestC11(t *testing.T) {
	t.Parallel()
	const size = 32 * mib
	v := twoNetworks(t, 2, size)
	v.StartEngine()
	c := v.Dial()
	model := make([]byte, size)
	for i := range model {
		model[i] = byte(i>>9 + i*13 + 1)
	}
	for off := int64(0); off < size; off += mib {
		if _, err := c.WriteAt(model[off:off+mib], off); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	sources := v.Replicas[:2]
	third := v.AddReplica("vol-third").Start()
	built := during(t, hostsOf(v), func() { v.Rebuild(third) })
	built[third.Host].carried(t, "the new replica", size, 0)
	var out int64
	for _, r := range sources {
		built[r.Host].carried(t, r.Name, 0, 0)
		out += built[r.Host].storage.Out
	}
	if out < size {
		t.Errorf("%d bytes left the sources of the rebuild over the storage network, want at least %d", out, size)
	}
	built[v.Engine().Host].carried(t, "engine", 0, 0)
	check(t, v, model)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	v.StopEngine()
	identical(t, v.Replicas...)
}
