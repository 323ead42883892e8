package daemon

import (
	"context"
	"errors"
)

func fuseLoopAvailable() error { return errors.New("not built in") }

func (p *engineProcess) startFUSELoop(context.Context) (string, error) {
	return "", errors.New("not built in")
}
