package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"ankole.storage/cli/output"
	"ankole.storage/cli/view"
	"ankole.storage/rest/client"
	"ankole.storage/rest/findings"
	"ankole.storage/rest/resource"
)

// defaultTimeout is how long --wait waits. Attaching takes a second or two; a minute says that
// something is wrong.
const defaultTimeout = time.Minute

// waiting is the flags of commands that can wait.
type waiting struct {
	wait    bool
	timeout time.Duration
}

func (w *waiting) addTo(c *cobra.Command) { w.addFor(c, defaultTimeout) }

// addFor is addTo for what takes as long as there are data.
func (w *waiting) addFor(c *cobra.Command, usual time.Duration) {
	c.Flags().BoolVar(&w.wait, "wait", true, "stay until it is done; --wait=false returns when the order is given")
	c.Flags().DurationVar(&w.timeout, "timeout", usual, "how long to wait")
}

// poll looks again and again, with a pause every, until look has done or fails; one look that took
// too long is no failure. late is the error when the time is over, which look does not outlast.
func poll(ctx context.Context, timeout, every time.Duration, look func(context.Context) (done bool, err error),
	late func() error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		done, err := look(ctx)
		switch {
		case err == nil && done:
			return nil
		case err != nil && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded):
			return err
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return late()
			}
			return ctx.Err()
		case <-time.After(every):
		}
	}
}

// await follows a volume, showing its progress, until done answers true; goal is the word for that.
func (a *app) await(ctx context.Context, api *client.Client, name string, timeout time.Duration, goal string,
	done func(*resource.Volume) (bool, error)) (*resource.Volume, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	line := output.NewLine(a.err, a.terminal)
	defer line.Stop()
	var last *resource.Volume
	err := api.WaitVolume(ctx, name, func(v *resource.Volume) (bool, error) {
		if v == nil {
			// A list read before the creation was seen shows nothing yet.
			if last == nil {
				return false, nil
			}
			return false, fmt.Errorf("volume %s was deleted before it was %s", name, goal)
		}
		last = v
		ok, err := done(v)
		if !ok && err == nil {
			percent, text := findings.Describe(v)
			line.Set(percent, "volume %s: %s", name, text)
		}
		return ok, err
	})
	if errors.Is(err, context.DeadlineExceeded) {
		if last == nil {
			return nil, fmt.Errorf("volume %s did not appear within %s; list volumes with: ankole volume list", name, timeout)
		}
		_, text := findings.Describe(last)
		return nil, fmt.Errorf("volume %s is not %s after %s: it is %s; follow it with: ankole volume watch %s", name,
			goal, timeout, text, name)
	}
	return last, err
}

// awaitGone waits until a volume does not exist.
func (a *app) awaitGone(ctx context.Context, api *client.Client, name string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	line := output.NewLine(a.err, a.terminal)
	defer line.Stop()
	err := api.WaitVolume(ctx, name, func(v *resource.Volume) (bool, error) {
		if v != nil {
			line.Set(output.UnknownPercent, "volume %s: %s", name, v.State)
		}
		return v == nil, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("volume %s is not deleted after %s; follow it with: ankole volume watch %s", name, timeout, name)
	}
	return err
}

// watch prints a line for every change of one volume, or of all if name is empty.
func (a *app) watch(ctx context.Context, api *client.Client, name string) error {
	printed := map[string]string{}
	lost := func(err error) error {
		fmt.Fprintf(a.err, "lost the stream (%v), trying again\n", err)
		return nil
	}
	return api.WatchVolumes(ctx, lost, func(all []resource.Volume) error {
		seen := map[string]bool{}
		for _, v := range all {
			if name != "" && v.Name != name {
				continue
			}
			seen[v.Name] = true
			a.printChange(printed, v.Name, view.WatchLine(v))
		}
		for _, gone := range output.SortedKeys(printed) {
			if seen[gone] {
				continue
			}
			a.printChange(printed, gone, "deleted")
			delete(printed, gone)
			if gone == name {
				return client.ErrStop
			}
		}
		return nil
	})
}

func (a *app) printChange(printed map[string]string, name, text string) {
	if printed[name] != text {
		fmt.Fprintf(a.out, "%s  %s  %s\n", time.Now().Format(time.TimeOnly), name, text)
	}
	printed[name] = text
}
