package demo

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"ankole.storage/rest/resource"
)

// networkSetting names the network for data; empty means the cluster's own.
const networkSetting = "storage-network"

// countFor is how long bytes are counted.
const countFor = 3 * time.Second

// network shows on which network the data of the volumes goes, where the cluster has a second one.
func (t *tour) network(ctx context.Context) error {
	s, err := t.Client.Setting(ctx, networkSetting)
	if err != nil {
		return err
	}
	t.say("Storage Network Through gRPC Proxy", "Data goes over the storage network")
	if s.Value == "" {
		t.tell("not shown: setting %s is empty, and may be changed only while all volumes are detached; to see it:",
			networkSetting)
		t.tell("  ankole standalone --pod-network kube-system/storage=127.0.2.0")
		t.tell("  ankole setting set %s kube-system/storage", networkSetting)
		return nil
	}
	data, management, err := t.addresses(ctx)
	if err != nil {
		return err
	}
	if len(data) == 0 {
		t.tell("not shown: the processes of the volumes are not on this machine or not visible")
		return nil
	}
	before, err := connections()
	if err != nil {
		return err
	}
	if err := pause(ctx, countFor); err != nil {
		return err
	}
	after, err := connections()
	if err != nil {
		return err
	}
	onData, connected := grown(before, after, data)
	onManagement, _ := grown(before, after, management)
	t.tell("storage network %s: %d KiB of data in %s over %d connections of engines to replicas (%s)", s.Value, onData>>10,
		countFor, connected, addressList(data))
	t.tell("the cluster's network: %d KiB to the same nodes (%s), orders and questions", onManagement>>10,
		addressList(management))
	if slices.ContainsFunc(data, func(a netip.Addr) bool { return slices.Contains(management, a) }) {
		return fmt.Errorf("replicas listen on the cluster's network (%s), not on %s", addressList(data), s.Value)
	}
	if connected == 0 || onData < minData || onData < 4*onManagement {
		return fmt.Errorf("%d bytes went over the storage network and %d over the cluster's: data should go over the former",
			onData, onManagement)
	}
	return nil
}

// minData is what the writers write at least while bytes are counted: one record each.
const minData = tourVolumes * recordSize

// addresses are where the replicas of the tour's volumes listen for engines, and the addresses of
// their nodes' Pods on the cluster's network.
func (t *tour) addresses(ctx context.Context) (data, management []netip.Addr, err error) {
	all := processes(t.Proc)
	for _, name := range t.names() {
		v, err := t.Client.Volume(ctx, name)
		if err != nil {
			return nil, nil, err
		}
		for _, r := range v.Replicas {
			at, ok := listensAt(all, r)
			ip, err := netip.ParseAddr(r.Address)
			if !ok || err != nil {
				continue
			}
			data, management = append(data, at), append(management, ip)
		}
	}
	unique := func(list []netip.Addr) []netip.Addr {
		slices.SortFunc(list, netip.Addr.Compare)
		return slices.Compact(list)
	}
	return unique(data), unique(management), nil
}

// listensAt is the address at which a replica's process was told to listen.
func listensAt(all map[int][]string, r resource.Replica) (netip.Addr, bool) {
	pid := replicaPID(all, r)
	for i, arg := range all[pid] {
		value, ok := strings.CutPrefix(arg, "--listen=")
		if arg == "--listen" && i+1 < len(all[pid]) {
			value, ok = all[pid][i+1], true
		}
		if ok {
			at, err := netip.ParseAddrPort(value)
			return at.Addr(), err == nil
		}
	}
	return netip.Addr{}, false
}

// grown adds up what went over connections to some addresses between two looks, and counts those
// connections.
func grown(before, after map[connection]uint64, to []netip.Addr) (bytes uint64, connected int) {
	for c, n := range after {
		if slices.Contains(to, c.to.Addr()) {
			bytes += n - min(n, before[c])
			connected++
		}
	}
	return bytes, connected
}

func addressList(all []netip.Addr) string {
	var text []string
	for _, a := range all {
		text = append(text, a.String())
	}
	return strings.Join(text, ", ")
}
