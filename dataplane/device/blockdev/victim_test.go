package blockdev_test

import (
	"context"
	"fmt"
	"os"

	"ankole.storage/dataplane/device/blockdev"
	"ankole.storage/dataplane/frontend/frontendtest"
	"ankole.storage/dataplane/frontend/fuseloop"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/loop/posix"
)

// victim serves a volume under dir, says so, and waits to be killed.
func victim(dir string) int {
	return serve(dir, 64<<20, func(c loop.Core) loop.Core { return c }, func(*blockdev.Device) error {
		fmt.Println("ready")
		return nil
	})
}

// serve serves a volume of size bytes under dir, through what wrap makes of its core, and calls
// exposed when it has its block device. It returns when something fails.
func serve(dir string, size int64, wrap func(loop.Core) loop.Core, exposed func(*blockdev.Device) error) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	arena := loop.NewArena(32 << 20)
	l, err := posix.New(arena, posix.Options{})
	if err != nil {
		return fail(err)
	}
	d, err := blockdev.Open(context.Background(), victimConfig(dir))
	if err != nil {
		return fail(err)
	}
	v := frontendtest.NewDevice(arena, size)
	v.Frontend, err = fuseloop.New(fuseloop.Config{Owner: frontendtest.Owner, Arena: arena, Device: d.Handle(),
		File: "vol", Size: size})
	if err != nil {
		return fail(err)
	}
	go func() {
		err := d.Expose(context.Background())
		if err == nil {
			err = exposed(d)
		}
		if err != nil {
			os.Exit(fail(err))
		}
	}()
	return fail(posix.Run(context.Background(), l, wrap(v)))
}
