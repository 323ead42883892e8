package instancemanager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/controlplane/loop"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/instance"
	"ankole.storage/host/patience"
	imclient "ankole.storage/instancemanager/client"
)

// callTimeout bounds one order to an instance manager. Starting and stopping go on after the
// answer.
const callTimeout = 10 * time.Second

// Callers orders processes from instance managers; it implements instance.Processes. The leader
// runs it as a Runnable, whose end closes the connections.
type Callers struct {
	connect Connect

	mu      sync.Mutex
	clients map[string]*imclient.Client // by address
}

var _ instance.Processes = (*Callers)(nil)

// NewCallers returns it without any connection.
func NewCallers(connect Connect) *Callers {
	return &Callers{connect: connect, clients: map[string]*imclient.Client{}}
}

// Start waits for ctx to end and closes all connections.
func (c *Callers) Start(ctx context.Context) error {
	<-ctx.Done()
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for address, cl := range c.clients {
		errs = append(errs, cl.Close())
		delete(c.clients, address)
	}
	return errors.Join(errs...)
}

func (c *Callers) client(im *v1beta2.InstanceManager) (*imclient.Client, error) {
	if im.Status.CurrentState != v1beta2.InstanceManagerStateRunning || im.Status.IP == "" {
		return nil, fmt.Errorf("instance manager %s is not running (%s)", im.Name, im.Status.CurrentState)
	}
	return c.at(im.Status.IP)
}

// at returns the client of the instance manager at the address of a Pod.
func (c *Callers) at(ip string) (*imclient.Client, error) {
	address := net.JoinHostPort(ip, strconv.Itoa(naming.PortProcessManager))
	c.mu.Lock()
	defer c.mu.Unlock()
	if cl := c.clients[address]; cl != nil {
		return cl, nil
	}
	cl, err := c.connect(address)
	if err != nil {
		return nil, err
	}
	c.clients[address] = cl
	return cl, nil
}

// Create orders a process; one that exists already is no error if it was made for the same order.
func (c *Callers) Create(ctx context.Context, im *v1beta2.InstanceManager, p instance.Process) error {
	if err := incompatible(im.Status.APIVersion, im.Status.APIMinVersion); err != nil {
		return fmt.Errorf("instance manager %s cannot be used: %w", im.Name, err)
	}
	cl, err := c.client(im)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := cl.ProcessCreate(ctx, spec(p))
	if errors.Is(err, imclient.ErrExists) {
		answer, err = sameOrder(ctx, cl, p, err)
	}
	switch {
	case errors.Is(err, imclient.ErrUnavailable): // condition ProcessesConfirmed tells of it
		return fmt.Errorf("%w: %w", loop.ErrTold, err)
	case err != nil:
		return err
	case answer.GetStatus().GetState() == string(v1beta2.InstanceStateError):
		return fmt.Errorf("instance manager %s: process %s did not start: %s", im.Name, p.Name,
			answer.GetStatus().GetErrorMsg())
	}
	return nil
}

// replaceTimeout bounds the order to replace an engine: 30 s until it takes over, and what the
// instance manager needs to stop one that does not.
var replaceTimeout = patience.Of(time.Minute)

// Replace has an engine's process hand its volume over to a new one of another binary.
func (c *Callers) Replace(ctx context.Context, im *v1beta2.InstanceManager, p instance.Process) error {
	cl, err := c.client(im)
	if err != nil {
		return fmt.Errorf("%w: %w", instance.ErrUnsettled, err)
	}
	ctx, cancel := context.WithTimeout(ctx, replaceTimeout)
	defer cancel()
	_, err = cl.ProcessReplace(ctx, spec(p))
	if errors.Is(err, imclient.ErrExists) || errors.Is(err, imclient.ErrUnavailable) {
		return fmt.Errorf("%w: %w", instance.ErrUnsettled, err)
	}
	return err
}

func spec(p instance.Process) *imrpc.ProcessSpec {
	return &imrpc.ProcessSpec{
		Name: p.Name, Binary: p.Binary, Args: p.Args,
		PortCount: int32(p.PortCount), PortArgs: p.PortArgs,
		Environment: p.Environment, Order: p.Order,
	}
}

// sameOrder returns the process that has the name already, if it was made for the same order: the
// answer to an earlier attempt was lost then. Without orders on both sides the name has to do.
func sameOrder(ctx context.Context, cl *imclient.Client, p instance.Process, exists error) (*imrpc.ProcessResponse,
	error) {
	have, err := cl.ProcessGet(ctx, p.Name)
	if err != nil {
		return nil, err
	}
	if order := have.GetSpec().GetOrder(); order != "" && p.Order != "" && order != p.Order {
		return nil, fmt.Errorf("%w: it was made for order %s, not for %s, and is stopped first", exists, order, p.Order)
	}
	return have, nil
}

// CloseIdle asks the instance manager at the address of a Pod for its processes, and to start no
// other one if none runs; refuses tells whether that is so.
func (c *Callers) CloseIdle(ctx context.Context, podIP string) (list map[string]*imrpc.ProcessResponse, refuses bool,
	err error) {
	cl, err := c.at(podIP)
	if err != nil {
		return nil, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return cl.CloseIdle(ctx)
}

// Get returns a process, nil if it is not there.
func (c *Callers) Get(ctx context.Context, im *v1beta2.InstanceManager, name string) (*v1beta2.InstanceProcess, error) {
	cl, err := c.client(im)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := cl.ProcessGet(ctx, name)
	if errors.Is(err, imclient.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p := processOf(answer)
	return &p, nil
}

// Delete orders the end of a process; one that does not exist, or has another UUID, is no error.
func (c *Callers) Delete(ctx context.Context, im *v1beta2.InstanceManager, name, uuid string) error {
	return c.delete(ctx, im, func(ctx context.Context, cl *imclient.Client) error {
		_, err := cl.ProcessDelete(ctx, name, uuid)
		return err
	})
}

// DeleteLast is Delete for a process that no other one of its name follows there.
func (c *Callers) DeleteLast(ctx context.Context, im *v1beta2.InstanceManager, name, uuid string) error {
	return c.delete(ctx, im, func(ctx context.Context, cl *imclient.Client) error {
		_, err := cl.ProcessDeleteLast(ctx, name, uuid)
		return err
	})
}

// logLines is how much of the log of a process that has failed is copied: its last words, and a
// stack trace.
const logLines = 200

var _ instance.LogReader = (*Callers)(nil)

// CopyLog implements instance.LogReader.
func (c *Callers) CopyLog(ctx context.Context, im *v1beta2.InstanceManager, name string) error {
	return c.readLog(ctx, im, name, func(line string) {
		slog.Info("log of a process", "process", name, "instanceManager", im.Name, "line", line)
	})
}

// readLog reads the end of the log of a process line by line; one without a log has no line.
func (c *Callers) readLog(ctx context.Context, im *v1beta2.InstanceManager, name string, each func(string)) error {
	cl, err := c.client(im)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err = cl.ProcessLog(ctx, name, imclient.LogOptions{Tail: logLines}, func(line string) error {
		each(line)
		return nil
	})
	if errors.Is(err, imclient.ErrNotFound) {
		return nil
	}
	return err
}

func (c *Callers) delete(ctx context.Context, im *v1beta2.InstanceManager,
	order func(context.Context, *imclient.Client) error) error {
	cl, err := c.client(im)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := order(ctx, cl); !errors.Is(err, imclient.ErrNotFound) {
		return err
	}
	return nil
}
