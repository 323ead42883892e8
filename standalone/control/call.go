package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"

	"ankole.storage/host/listener"
)

// Call sends one request to whoever serves a state folder, and waits for the answer. The cause of
// ctx if that ends first.
func Call(ctx context.Context, stateDir string, r Request) error {
	path, release, err := listener.Reach(filepath.Join(stateDir, SocketName))
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	defer release()
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("nobody serves %s: %w", stateDir, err)
	}
	defer func() { _ = c.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() }) // nobody waits for the answer any more
	defer stop()
	var answer Response
	if err = json.NewEncoder(c).Encode(r); err == nil {
		err = json.NewDecoder(c).Decode(&answer)
	}
	if ctx.Err() != nil && err != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	return nil
}
