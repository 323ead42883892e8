package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	imclient "ankole.storage/instancemanager/client"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/serve"
)

const (
	// logBuffer is how many lines may be read ahead of a client.
	logBuffer = 256
	// logStall ends a log whose client does not read; it is that of instance managers.
	logStall = 5 * time.Minute
)

// serveLog sends the log of an engine or replica process as text, line by line:
//
//	GET /v1/instancelogs/{name}?follow=true&tail=100&node=node-1
//
// Without a node it is the one where the instance is, or was last. A log that breaks off tells why
// in a trailer.
func (a *API) serveLog(w http.ResponseWriter, q *serve.Request) error {
	name := q.Params["name"]
	options, err := logOptions(q.Request)
	if err != nil {
		return err
	}
	if a.Connect == nil {
		return errors.New("this server has no way to instance managers")
	}
	done, err := q.KeepOpen()
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithCancel(q.Context())
	defer cancel()
	managers, err := logManagers(ctx, q.Objects, name, q.URL.Query().Get("node"))
	if err != nil {
		return err
	}
	out := &logWriter{w: w, control: http.NewResponseController(w)}
	for _, m := range managers {
		if err = a.copyLog(ctx, cancel, m, name, options, out); !errors.Is(err, imclient.ErrNotFound) {
			break
		}
	}
	switch {
	case err == nil:
		out.begin() // a log may be empty
	case out.begun:
		w.Header().Set(resource.HeaderLogError, strings.Join(strings.Fields(err.Error()), " "))
	case errors.Is(err, imclient.ErrNotFound):
		return serve.Refuse(http.StatusNotFound, fmt.Errorf("node %s has no log of %s; it is kept where the process ran",
			managers[0].Spec.NodeID, name))
	default:
		return err
	}
	return nil
}

func logOptions(r *http.Request) (o imclient.LogOptions, err error) {
	query := r.URL.Query()
	if text := query.Get("follow"); text != "" {
		if o.Follow, err = strconv.ParseBool(text); err != nil {
			return o, fmt.Errorf("follow=%q is neither true nor false", text)
		}
	}
	if text := query.Get("tail"); text != "" {
		if o.Tail, err = strconv.ParseInt(text, 10, 64); err != nil || o.Tail < 1 {
			return o, fmt.Errorf("tail=%q is not a number of lines from 1 on", text)
		}
	}
	return o, nil
}

// logManagers returns the instance managers that may have the log: those of the node, or of the
// node of the engine or replica called so.
func logManagers(ctx context.Context, o *serve.Objects, name, node string) ([]lh.InstanceManager, error) {
	manager := ""
	if node == "" {
		var err error
		if node, manager, err = placeOf(ctx, o, name); err != nil {
			return nil, err
		}
	}
	var all lh.InstanceManagerList
	if err := o.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("listing instance managers: %w", err)
	}
	serve.SortByName(all.Items)
	var found []lh.InstanceManager
	for _, m := range all.Items {
		if (m.Name == manager || manager == "" && m.Spec.NodeID == node) && m.Status.IP != "" {
			found = append(found, m)
		}
	}
	if len(found) == 0 {
		if node == "" {
			node = manager
		}
		return nil, fmt.Errorf("no instance manager runs on %s, so the log of %s cannot be read there", node, name)
	}
	return found, nil
}

// placeOf returns the node or the instance manager of an engine or replica.
func placeOf(ctx context.Context, o *serve.Objects, name string) (node, manager string, err error) {
	var engine lh.Engine
	err = o.Get(ctx, name, &engine)
	if err == nil && engine.Status.InstanceManagerName == "" && engine.Spec.NodeID == "" {
		return "", "", fmt.Errorf("engine %s does not run: volume %s is not attached; name the node where it was, "+
			"whose instance manager has the log",
			name, engine.Spec.VolumeName)
	}
	if err == nil {
		return engine.Spec.NodeID, engine.Status.InstanceManagerName, nil
	}
	if !apierrors.IsNotFound(err) {
		return "", "", fmt.Errorf("reading engine %s: %w", name, err)
	}
	var replica lh.Replica
	err = o.Get(ctx, name, &replica)
	switch {
	case apierrors.IsNotFound(err):
		return "", "", serve.Refuse(http.StatusNotFound,
			fmt.Errorf("there is no engine and no replica %s; if there was one, name the node where it ran", name))
	case err != nil:
		return "", "", fmt.Errorf("reading replica %s: %w", name, err)
	case replica.Status.InstanceManagerName == "" && replica.Spec.NodeID == "":
		return "", "", fmt.Errorf("replica %s has no node yet", name)
	}
	return replica.Spec.NodeID, replica.Status.InstanceManagerName, nil
}

// copyLog sends what one instance manager has. The reading goroutine has ended when it returns.
func (a *API) copyLog(ctx context.Context, cancel context.CancelFunc, m lh.InstanceManager, name string,
	o imclient.LogOptions, out *logWriter) error {
	c, err := a.Connect(net.JoinHostPort(m.Status.IP, strconv.Itoa(naming.PortProcessManager)))
	if err != nil {
		return fmt.Errorf("instance manager %s on node %s: %w", m.Name, m.Spec.NodeID, err)
	}
	defer c.Close()
	lines := make(chan string, logBuffer)
	ended := make(chan error, 1)
	go func() {
		defer close(lines)
		ended <- c.ProcessLog(ctx, name, o, func(line string) error {
			select {
			case lines <- line:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	written := out.copy(lines)
	if written != nil {
		cancel() // the client has gone
		for range lines {
		}
	}
	if err := <-ended; written == nil && err != nil {
		return err
	}
	return written
}

// logWriter writes lines to a client, who gets each at once when no other waits.
type logWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	begun   bool
}

// begin sends the header; there is no refusal any more.
func (l *logWriter) begin() {
	if l.begun {
		return
	}
	l.begun = true
	h := l.w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Trailer", resource.HeaderLogError)
	l.w.WriteHeader(http.StatusOK)
}

func (l *logWriter) copy(lines <-chan string) error {
	b := bufio.NewWriter(l.w)
	for line := range lines {
		l.begin()
		// A writer without deadlines is one of a test.
		_ = l.control.SetWriteDeadline(time.Now().Add(logStall))
		if _, err := b.WriteString(line + "\n"); err != nil {
			return err
		}
		if len(lines) > 0 {
			continue
		}
		if err := errors.Join(b.Flush(), l.control.Flush()); err != nil {
			return err
		}
	}
	return nil
}
