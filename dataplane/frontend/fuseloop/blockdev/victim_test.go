package blockdev_test

import (
	"context"
	"fmt"
	"os"

	"ankole.storage/dataplane/frontend/frontendtest"
	"ankole.storage/dataplane/frontend/fuseloop"
	"ankole.storage/dataplane/frontend/fuseloop/blockdev"
	"ankole.storage/dataplane/loop"
	"ankole.storage/dataplane/loop/posix"
)

// victim serves a volume under dir, says so, and waits to be killed.
func victim(dir string) int {
	const size = 64 << 20
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
		if err := d.Expose(context.Background()); err != nil {
			os.Exit(fail(err))
		}
		fmt.Println("ready")
	}()
	return fail(posix.Run(context.Background(), l, v))
}
