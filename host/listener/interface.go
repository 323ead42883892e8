package listener

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
)

// InterfacesVariable is the environment variable that stands for network interfaces on process
// nodes, whose processes share those of the machine: a JSON object {"<interface>": "<IPv4
// address>"}. Nothing else sets it.
const InterfacesVariable = "ANKOLE_INTERFACES"

// InterfaceAddress is the IPv4 address of a network interface of this process's Pod; empty if there
// is no such interface.
func InterfaceAddress(name string) (string, error) {
	if text, set := os.LookupEnv(InterfacesVariable); set {
		all := map[string]string{}
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			return "", fmt.Errorf("environment %s is not a JSON object of interfaces and addresses: %w", InterfacesVariable,
				err)
		}
		return all[name], nil
	}
	i, err := net.InterfaceByName(name)
	if err != nil {
		return "", nil // the one error that a name can lead to
	}
	addresses, err := i.Addrs()
	if err != nil {
		return "", fmt.Errorf("interface %s: %w", name, err)
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil {
			return n.IP.String(), nil
		}
	}
	return "", fmt.Errorf("interface %s has no IPv4 address: the network is not ready", name)
}
