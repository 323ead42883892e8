// Package uninstall removes an installation from a cluster: all volumes with their data, and
// everything that the managers have made. What an installer has made, such as the CSI driver,
// Services and roles, is left to it.
//
// The managers remove the volumes, since only they reach the replicas' directories; so they have to
// run until no volume is left. After that they are ended, for they would make anew what is removed:
// their own objects, webhooks, definitions of kinds. Each step looks at what is there and acts on
// that, so that an interrupted uninstallation is repeated from the start.
//
// On the nodes stay the disks' identity files, the installed engines, and directories of replicas
// that no object speaks of, which are known as orphans.
package uninstall

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrRefused marks why nothing, or nothing more, is removed until a person has done something.
var ErrRefused = errors.New("uninstallation refused")

// retryEvery is how often a step looks again at what is left.
const retryEvery = time.Second

// Config of an uninstallation.
type Config struct {
	// Client reads and writes past every cache.
	Client    client.Client
	Namespace string
	// retryEvery is that of the package where it is 0.
	retryEvery time.Duration
}

// step removes something. It is repeated until nothing is left that it names.
type step struct {
	what string
	do   func(context.Context) (left []string, err error)
}

// Run removes everything. An error that is ErrRefused says what a person has to do first.
func Run(ctx context.Context, c Config) error {
	if c.retryEvery == 0 {
		c.retryEvery = retryEvery
	}
	if err := c.permitted(ctx); err != nil {
		return err
	}
	for _, s := range []step{
		{"volumes and their data", c.volumes},
		{"persistent volumes", c.persistentVolumes},
		{"contents of volume snapshots", c.snapshotContents},
		{"managers", c.managers},
		{"webhooks", c.webhooks},
		{"objects", c.objects},
		{"what belongs to objects", c.owned},
		{"secrets and the leader's lease", c.unowned},
		{"definitions of kinds", c.definitions},
	} {
		if err := c.complete(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// complete repeats a step until nothing is left, and says what is, whenever that has changed.
func (c Config) complete(ctx context.Context, s step) error {
	said := ""
	for {
		left, err := s.do(ctx)
		now := some(left)
		switch {
		case errors.Is(err, ErrRefused):
			return err
		case err != nil && ctx.Err() == nil:
			if now = err.Error(); now != said {
				slog.Warn("not removed yet, trying again", "what", s.what, "err", err)
			}
		case err == nil && len(left) == 0:
			slog.Info("removed", "what", s.what)
			return nil
		case now != said:
			slog.Info("waiting for the removal", "what", s.what, "left", now)
		}
		said = now
		pause := time.NewTimer(c.retryEvery)
		select {
		case <-ctx.Done():
			pause.Stop()
			return fmt.Errorf("ended while %s were being removed; left: %s", s.what, now)
		case <-pause.C:
		}
	}
}

// refuse returns an error for what a person has to do.
func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrRefused, fmt.Sprintf(format, args...))
}

// mostNamed is how many objects a message names.
const mostNamed = 10

// some names a few of many.
func some(names []string) string {
	slices.Sort(names)
	if more := len(names) - mostNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:mostNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}
