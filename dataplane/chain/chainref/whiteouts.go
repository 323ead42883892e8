package chainref

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"

	"ankole.storage/dataplane/disk"
)

// checkWhiteouts wants a file for every layer that names one, no two layers with the same, and no
// other files.
func (r *Replica) checkWhiteouts(names []string, o Options) error {
	named := map[string]string{}
	for image, l := range r.Layers {
		if l.Whiteouts == "" {
			continue
		}
		file := "ankole.whiteouts-" + l.Whiteouts
		// A purge that was interrupted at its last step leaves a removed layer and the one above it
		// with one file.
		if other, twice := named[file]; twice && !o.Strays {
			return fmt.Errorf("%s and %s have the same whiteouts", image, other)
		}
		named[file] = image
		if r.key != "" && !slices.Contains(names, file) {
			return fmt.Errorf("%s has the whiteouts %s, which are not there", image, l.Whiteouts)
		}
	}
	for _, name := range names {
		if strings.HasPrefix(name, "ankole.whiteouts-") && named[name] == "" && !o.Strays && !o.Foreign {
			return fmt.Errorf("%s belongs to no layer", name)
		}
	}
	return nil
}

// Hide makes the blocks of out read as zeroes that a layer hides of those below it, by what
// volume.meta and the layer's .meta have as AnkoleWhiteouts.
func Hide(fs disk.Meta, dir, volume, layer string, out []byte) error {
	if layer == "" || volume == "" {
		return nil
	}
	key, err := hex.DecodeString(volume)
	if err != nil || len(key) != 16 {
		return fmt.Errorf("volume.meta has AnkoleWhiteouts %q", volume)
	}
	number, err := hex.DecodeString(layer)
	if err != nil || len(number) != 8 {
		return fmt.Errorf("a layer of %s has AnkoleWhiteouts %q", dir, layer)
	}
	data, err := fs.ReadFile(path.Join(dir, "ankole.whiteouts-"+layer), 64<<20)
	if err != nil {
		return err
	}
	for page := 0; page*8192 < len(data); page++ {
		newest, bits := uint64(0), []byte(nil)
		for slot := range 2 {
			at := page*8192 + slot*4096
			if at+4096 > len(data) {
				break
			}
			p := data[at : at+4096]
			seq := binary.LittleEndian.Uint64(p[16:])
			sum := xxh3.Hash128Seed(p[:4080], uint64(page)).Bytes()
			if string(p[:8]) == "ANKWHITE" && string(sum[:]) == string(p[4080:]) && binary.LittleEndian.Uint32(p[8:]) == 1 &&
				binary.LittleEndian.Uint32(p[12:]) == uint32(page) && string(p[24:40]) == string(key) &&
				binary.LittleEndian.Uint64(p[40:]) == binary.BigEndian.Uint64(number) && seq%2 == uint64(slot) && seq >= newest {
				newest, bits = seq, p[64:64+2048]
			}
		}
		for i := range len(bits) * 8 {
			if off := (page*16384 + i) * 4096; bits[i/8]>>(i%8)&1 != 0 && off < len(out) {
				clear(out[off:min(off+4096, len(out))])
			}
		}
	}
	return nil
}
