package chain

import (
	"fmt"
	"maps"
)

// Content that comes from outside through ordinary writes (a clone) is in the head, and incomplete,
// until it becomes a snapshot. The head says so: a label in its metadata, durable before the first
// write. Taking the snapshot makes a head without the label, so that one step makes the content
// complete and takes the mark away. Other engines ignore labels of a head and keep them.

// importLabel marks a head that is being filled. Its value says from where.
const importLabel = "ankole-import"

// maxImportMark bounds the mark's value.
const maxImportMark = 4 << 10

// SetImportMark durably marks the head as incomplete content; what says from where, and "" takes
// the mark away.
func (m *meta) SetImportMark(what string) error {
	if err := m.usable(); err != nil {
		return err
	}
	if len(what) > maxImportMark {
		return fmt.Errorf("%w: import mark of %d bytes; at most %d", ErrInvalid, len(what), maxImportMark)
	}
	if m.ImportMark() == what {
		return nil
	}
	d := *m.disks[m.vm.Head]
	d.Labels = maps.Clone(d.Labels)
	if what == "" {
		delete(d.Labels, importLabel)
	} else {
		if d.Labels == nil {
			d.Labels = map[string]string{}
		}
		d.Labels[importLabel] = what
	}
	return m.change(m.vm.Head, d)
}

// ImportMark is the head's mark, "" where it has none.
func (m *meta) ImportMark() string {
	if d := m.disks[m.vm.Head]; d != nil {
		return d.Labels[importLabel]
	}
	return ""
}

// passImportOn has the snapshot that a head becomes say which import it holds, where the layer
// below says it and nothing was written to the head.
func (o *openFiles) passImportOn(snap *DiskMeta) error {
	below := o.meta.disks[o.meta.disks[o.meta.vm.Head].Parent]
	if below == nil || below.Labels[importLabel] == "" || o.head().whiteouts != nil {
		return nil
	}
	extents, more, err := o.head().file.Extents(0, nil)
	if err == nil && len(extents) == 0 && !more {
		snap.Labels[importLabel] = below.Labels[importLabel]
	}
	return err
}
