package offline

import "ankole.storage/dataplane/disk"

// On is Open without holding anything, on any file system.
func On(fs disk.Meta, dir string, o Options) *Directory {
	return &Directory{Path: dir, fs: fs, opts: o}
}
