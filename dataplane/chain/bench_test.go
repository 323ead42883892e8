package chain_test

import (
	"testing"

	"ankole.storage/dataplane/chain"
	"ankole.storage/dataplane/disk/memdisk"
)

// What the data path pays the map per request.
func BenchmarkPlan(b *testing.B) {
	fs := memdisk.New()
	if err := chain.Create(fs, "/r", testSpec(64*mib), testOptions()); err != nil {
		b.Fatal(err)
	}
	c, err := chain.Open(fs, "/r", testOptions())
	if err != nil {
		b.Fatal(err)
	}
	c.MarkWritten(0, 64*mib)
	if err := c.Snapshot("a", true, "", nil); err != nil {
		b.Fatal(err)
	}
	for i := int64(0); i < 64*mib; i += 32768 {
		c.MarkWritten(i, 16384) // every second 16 KiB
	}
	plan := make([]chain.Extent, 0, 256)
	for name, n := range map[string]int64{"4KiB": 4096, "128KiB": 128 << 10, "1MiB": mib} {
		b.Run("read "+name, func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				plan = c.ReadPlan(int64(i)%32*mib, n, plan[:0])
			}
		})
		b.Run("write "+name, func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				c.MarkWritten(int64(i)%32*mib, n)
			}
		})
	}
}
