package instance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"strconv"
	"sync"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/controlplane/naming"
	"ankole.storage/instancemanager/client"
)

// callTimeout bounds one order: the instance manager answers at once and works on in the background.
const callTimeout = 15 * time.Second

// Direct orders processes from the process service of the instance managers' Pods.
type Direct struct {
	// Dial makes a client for "ip:port"; it decides about TLS.
	Dial func(address string) (*client.Client, error)

	mu      sync.Mutex
	clients map[string]*client.Client
}

var _ Processes = (*Direct)(nil)

// Create implements Processes.
func (d *Direct) Create(ctx context.Context, im *v1beta2.InstanceManager, p Process) error {
	c, err := d.client(im)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = c.ProcessCreate(ctx, &imrpc.ProcessSpec{
		Name: p.Name, Binary: p.Binary, Args: p.Args, PortCount: int32(p.PortCount), PortArgs: p.PortArgs,
		Environment: maps.Clone(p.Environment),
	})
	if errors.Is(err, client.ErrExists) {
		return nil
	}
	return err
}

// Delete implements Processes.
func (d *Direct) Delete(ctx context.Context, im *v1beta2.InstanceManager, name string) error {
	c, err := d.client(im)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err = c.ProcessDelete(ctx, name, ""); errors.Is(err, client.ErrNotFound) {
		return nil
	}
	return err
}

// Close closes all connections.
func (d *Direct) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.clients {
		_ = c.Close() // nothing is lost: an order under way fails and is repeated
	}
	d.clients = nil
}

// client returns the connection to an instance manager, one for each, replaced when its Pod got another address.
func (d *Direct) client(im *v1beta2.InstanceManager) (*client.Client, error) {
	if im.Status.IP == "" {
		return nil, fmt.Errorf("instance manager %s on node %s has no address yet: wait until it runs", im.Name, im.Spec.NodeID)
	}
	address := net.JoinHostPort(im.Status.IP, strconv.Itoa(naming.PortProcessManager))
	d.mu.Lock()
	defer d.mu.Unlock()
	if c := d.clients[im.Name]; c != nil {
		if c.Address() == address {
			return c, nil
		}
		_ = c.Close() // the Pod behind it is gone
	}
	c, err := d.Dial(address)
	if err != nil {
		return nil, err
	}
	if d.clients == nil {
		d.clients = map[string]*client.Client{}
	}
	d.clients[im.Name] = c
	return c, nil
}
