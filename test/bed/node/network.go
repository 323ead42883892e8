package node

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"

	"ankole.storage/test/bed/host"
	"ankole.storage/test/bed/networks"
)

const (
	// storageBridge joins the node's Pods to the storage network.
	storageBridge = "storage0"
	// cniDir holds configuration and state of the Pods' network, and the programs for it.
	cniDir = "/run/cni"
	// distributionPlugins is where Debian has the programs that set up networks of Pods.
	distributionPlugins = "/usr/lib/cni"
)

// setUpNetwork configures the interfaces that the bed has plugged in.
func setUpNetwork(cfg Config) error {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("loopback interface: %w", err)
	}
	eth0, err := netlink.LinkByName("eth0")
	if err != nil {
		return fmt.Errorf("interface eth0: %w", err)
	}
	if err := host.SetAddress(eth0, cfg.Address+"/24"); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(eth0); err != nil {
		return fmt.Errorf("interface eth0: %w", err)
	}
	routes := append([]Remote{{"0.0.0.0/0", cfg.Gateway}}, cfg.Neighbours...)
	for _, r := range routes {
		if err := host.AddRoute(r.PodNetwork, r.Address); err != nil {
			return err
		}
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return fmt.Errorf("forwarding between Pods and node: %w", err)
	}
	return joinStorage()
}

// joinStorage puts the node's second interface and a bridge for Pods together.
func joinStorage() error {
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: storageBridge}}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("make bridge %s: %w", storageBridge, err)
	}
	eth1, err := netlink.LinkByName("eth1")
	if err != nil {
		return fmt.Errorf("interface eth1: %w", err)
	}
	if err := netlink.LinkSetMaster(eth1, bridge); err != nil {
		return fmt.Errorf("interface eth1: %w", err)
	}
	for _, l := range []netlink.Link{eth1, bridge} {
		if err := netlink.LinkSetUp(l); err != nil {
			return fmt.Errorf("interface %s: %w", l.Attrs().Name, err)
		}
	}
	return nil
}

// configurePodNetwork writes what containerd sets up the network of Pods by: a bridge of the node,
// and behind it the stand-in for Multus.
func configurePodNetwork(cfg Config) error {
	type object = map[string]any
	ipam := func(name string, ranges object) object {
		return object{"type": "host-local", "dataDir": filepath.Join(cniDir, name), "ranges": []any{[]any{ranges}}}
	}
	first := ipam("pods", object{"subnet": cfg.PodNetwork})
	first["routes"] = []any{object{"dst": "0.0.0.0/0"}}
	second := object{"cniVersion": networks.Version, "name": "storage", "type": "bridge", "bridge": storageBridge,
		"ipam": ipam("storage", object{"subnet": cfg.StorageSegment, "rangeStart": cfg.StorageFirst,
			"rangeEnd": cfg.StorageLast})}
	list := object{"cniVersion": networks.Version, "name": "pods", "plugins": []any{
		object{"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true, "ipam": first},
		object{"type": networks.Program, "kubeconfig": cfg.NetworksKubeconfig, "network": cfg.StorageName,
			"delegate": second},
	}}
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return fmt.Errorf("network of Pods: %w", err)
	}
	bin, conf := filepath.Join(cniDir, "bin"), filepath.Join(cniDir, "net.d")
	for _, d := range []string{bin, conf} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return fmt.Errorf("network of Pods: %w", err)
		}
	}
	programs, err := os.ReadDir(distributionPlugins)
	if err != nil {
		return fmt.Errorf("network of Pods: %w (package containernetworking-plugins)", err)
	}
	links := map[string]string{networks.Program: cfg.Program}
	for _, p := range programs {
		if !strings.HasPrefix(p.Name(), ".") {
			links[p.Name()] = filepath.Join(distributionPlugins, p.Name())
		}
	}
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(bin, name)); err != nil {
			return fmt.Errorf("network of Pods: %w", err)
		}
	}
	return os.WriteFile(filepath.Join(conf, "10-pods.conflist"), text, 0o600)
}
