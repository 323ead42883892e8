// Package host makes and removes what a bed has on the machine outside its nodes' namespaces:
// bridges and interfaces, control groups, files with disks, and kernel parameters that kubelets
// change.
package host

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ankole.storage/test/bed/plan"
)

// MakeNetworks makes the bed's two bridges. The machine has an address in the first one, and routes
// to the Pods of all nodes, so that API server, kubectl and tests reach them. Nothing else of the
// machine's network changes, and it forwards nothing.
func MakeNetworks(p plan.Plan) error {
	for _, n := range []struct{ name, address string }{{p.Bridge(), p.Host() + "/24"}, {p.StorageBridge(), ""}} {
		link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: n.name}}
		if err := netlink.LinkAdd(link); err != nil {
			return fmt.Errorf("make bridge %s: %w", n.name, err)
		}
		if n.address != "" {
			if err := SetAddress(link, n.address); err != nil {
				return err
			}
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return fmt.Errorf("bridge %s: %w", n.name, err)
		}
	}
	for k := 1; k <= p.Nodes; k++ {
		if err := AddRoute(p.PodNetwork(k), p.NodeAddress(k)); err != nil {
			return err
		}
	}
	return nil
}

// SetAddress gives an interface an address with its network's length.
func SetAddress(link netlink.Link, cidr string) error {
	addr, err := netlink.ParseAddr(cidr)
	if err != nil {
		return fmt.Errorf("address %s: %w", cidr, err)
	}
	if err := netlink.AddrAdd(link, addr); err != nil {
		return fmt.Errorf("address %s on %s: %w", cidr, link.Attrs().Name, err)
	}
	return nil
}

// AddRoute adds a route to a network by way of a neighbour.
func AddRoute(cidr, via string) error {
	_, dst, err := net.ParseCIDR(cidr)
	if err != nil {
		return fmt.Errorf("route: %w", err)
	}
	if err := netlink.RouteAdd(&netlink.Route{Dst: dst, Gw: net.ParseIP(via)}); err != nil {
		return fmt.Errorf("route to %s by way of %s: %w", cidr, via, err)
	}
	return nil
}

// Plug makes the two interfaces of node k: eth0 and eth1 in the network namespace of process pid,
// their other ends in the bed's bridges.
func Plug(p plan.Plan, k, pid int) error {
	for _, n := range []struct {
		bridge, outside, inside string
	}{{p.Bridge(), p.Veth(k, false), "eth0"}, {p.StorageBridge(), p.Veth(k, true), "eth1"}} {
		bridge, err := netlink.LinkByName(n.bridge)
		if err != nil {
			return fmt.Errorf("bridge %s: %w", n.bridge, err)
		}
		err = netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: n.outside, MasterIndex: bridge.Attrs().Index},
			PeerName:  n.inside, PeerNamespace: netlink.NsPid(pid),
		})
		if err != nil {
			return fmt.Errorf("make interface %s: %w", n.outside, err)
		}
		link, err := netlink.LinkByName(n.outside)
		if err == nil {
			err = netlink.LinkSetUp(link)
		}
		if err != nil {
			return fmt.Errorf("interface %s: %w", n.outside, err)
		}
	}
	return nil
}

// RemoveInterface removes one interface, if it is there.
func RemoveInterface(name string) error {
	link, err := netlink.LinkByName(name)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	// Its other end may just have gone with its namespace.
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove interface %s: %w", name, err)
	}
	return nil
}

// RemoveInterfaces removes all interfaces whose names begin with prefix.
func RemoveInterfaces(prefix string) error {
	names, err := Interfaces(prefix)
	errs := []error{err}
	for _, name := range names {
		errs = append(errs, RemoveInterface(name))
	}
	return errors.Join(errs...)
}

// Interfaces lists the interfaces whose names begin with prefix.
func Interfaces(prefix string) ([]string, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	var names []string
	for _, l := range links {
		if strings.HasPrefix(l.Attrs().Name, prefix) {
			names = append(names, l.Attrs().Name)
		}
	}
	return names, nil
}
