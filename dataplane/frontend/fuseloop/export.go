package fuseloop

import (
	"encoding/json"
	"errors"
	"fmt"

	"ankole.storage/dataplane/frontend"
	"ankole.storage/dataplane/loop"
)

// A frontend can be given to another process: frontend.Exporter here, Import there. The kernel does
// not notice: a request comes from the descriptor whole or not at all, so what nobody has read
// waits in the kernel's queue for the successor, and there is nothing else to hand on but what was
// agreed at INIT, which the kernel says only once.

// Transport names this frontend in an export.
const Transport = "fuse-loop"

// exportVersion is the version of exportState. A field that an older frontend may ignore needs no
// new one.
const exportVersion = 1

// KindDevice is the kind of the descriptor of /dev/fuse in an export. Whoever set the file system
// up adds others.
const KindDevice = "device"

// exportState is what the successor has to know.
type exportState struct {
	Version int    `json:"version"`
	File    string `json:"file"`
	Size    int64  `json:"size"`
	// Flags are those agreed with the kernel.
	Flags uint64 `json:"flags"`
}

// handing is the part of a Frontend that hands it over.
type handing struct {
	suspended bool
	// released: the loop does not know the device; releasing: it is being told to forget it.
	released, releasing bool
}

// Suspend implements frontend.Exporter.
func (f *Frontend) Suspend(out *[]loop.Op) {
	f.suspended = true
	f.releaseDevice(out)
}

// releaseDevice has the loop forget the device, and so cancels the receives, once everything is
// answered. It is called again whenever that may have changed: until then a receive that was under
// way may bring another request.
func (f *Frontend) releaseDevice(out *[]loop.Op) {
	if f.suspended && !f.closing && !f.released && !f.releasing && f.pending == 0 && f.sends == 0 && len(f.left) == 0 {
		f.releasing = true
		*out = append(*out, loop.Op{Kind: loop.Release, Handle: f.cfg.Device, Tag: f.tag(tagRelease, 0)})
	}
}

// forgotten is called when the loop has forgotten the device. What was received before has been
// handled; if that has led to another operation, the loop knows the device again.
func (f *Frontend) forgotten(out *[]loop.Op) {
	f.releasing = false
	f.released = f.sends == 0 && f.waiting == 0
	if !f.suspended && !f.closing && !f.gone {
		f.receive(out)
	}
}

// Suspended implements frontend.Exporter.
func (f *Frontend) Suspended() bool {
	return f.suspended && f.released && f.pending == 0 && f.sends == 0 && f.waiting == 0 && len(f.left) == 0
}

// Continue implements frontend.Exporter.
func (f *Frontend) Continue(out *[]loop.Op) {
	f.suspended = false
	if !f.closing && !f.gone {
		f.receive(out)
	}
}

// Export implements frontend.Exporter.
func (f *Frontend) Export() frontend.Export {
	state, err := json.Marshal(exportState{Version: exportVersion, File: f.cfg.File, Size: f.size, Flags: f.flags})
	if err != nil {
		panic(err) // numbers and a string can be encoded
	}
	f.closing, f.closed = true, true
	f.clean()
	return frontend.Export{Transport: Transport, State: state,
		Descriptors: []frontend.Descriptor{{Kind: KindDevice, FD: int(f.cfg.Device)}}}
}

// ErrExport: what should be imported is no export of a FUSE frontend, or not one that this one can
// go on with.
var ErrExport = errors.New("fuse: cannot be imported")

// Import returns a frontend that goes on where another one was exported. Device and size are those
// of the export, whatever cfg says, and descriptors of other kinds are left to the caller. The
// device is the frontend's once it is returned, and the caller's in case of an error.
func Import(cfg Config, x frontend.Export) (*Frontend, error) {
	var st exportState
	if x.Transport != Transport {
		return nil, fmt.Errorf("%w: it is of a frontend %q", ErrExport, x.Transport)
	}
	if err := json.Unmarshal(x.State, &st); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrExport, err)
	}
	if st.Version != exportVersion || st.File != cfg.File {
		return nil, fmt.Errorf("%w: version %d of file %q; this is version %d of %q", ErrExport, st.Version, st.File,
			exportVersion, cfg.File)
	}
	cfg.Device, cfg.Size = loop.None, st.Size
	for _, d := range x.Descriptors {
		if d.Kind != KindDevice {
			continue
		}
		if cfg.Device != loop.None {
			return nil, fmt.Errorf("%w: two devices", ErrExport)
		}
		cfg.Device = loop.Handle(d.FD)
	}
	f, err := New(cfg)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrExport, err)
	}
	f.flags = st.Flags
	return f, nil
}
