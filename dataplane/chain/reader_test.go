package chain_test

import (
	"ankole.storage/dataplane/chain/chainref"
	"ankole.storage/dataplane/disk"
)

// readRaw reads a directory with the independent reader. After a crash strays are legal until the
// next open.
func readRaw(fs disk.Meta, dir string, strays bool) (*chainref.Replica, error) {
	return chainref.Read(fs, dir, chainref.Options{Strays: strays})
}
