package controller

import (
	"context"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"ankole.storage/csi/csitest"
	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

// imaging is a manager with backing images that are ready after some looks.
type imaging struct {
	*fake
	images  map[string]*resource.BackingImage
	ordered []client.BackingImageSpec
	// state and message are of copies that are not ready yet.
	state, message string
	left           int
	refuses        error
	// overtaken: another one makes the image first.
	overtaken bool
}

func newImaging() *imaging {
	return &imaging{fake: newFake(), images: map[string]*resource.BackingImage{}, state: "in-progress", left: 3}
}

func (m *imaging) BackingImage(_ context.Context, name string) (*resource.BackingImage, error) {
	b := m.images[name]
	if b == nil {
		return nil, notFound("backing image " + name)
	}
	state := m.state
	if m.left--; m.left < 0 {
		state = "ready"
	}
	out := *b
	out.DiskFileStatusMap = map[string]resource.BackingImageDiskFileStatus{"d1": {State: state, Message: m.message,
		LastStateTransitionTime: "2026-01-02T03:04:05Z"}}
	return &out, nil
}

func (m *imaging) CreateBackingImage(_ context.Context, s client.BackingImageSpec) (*resource.BackingImage, error) {
	m.ordered = append(m.ordered, s)
	if m.refuses != nil && !m.overtaken {
		return nil, m.refuses
	}
	b := &resource.BackingImage{Name: s.Name, SourceType: s.SourceType, Parameters: maps.Clone(s.Parameters),
		ExpectedChecksum: s.ExpectedChecksum}
	m.images[s.Name] = b
	return b, m.refuses
}

func (m *imaging) DeleteBackingImage(_ context.Context, name string) error {
	if m.images[name] == nil {
		return notFound("backing image " + name)
	}
	if m.refuses != nil {
		return m.refuses
	}
	delete(m.images, name)
	return nil
}

// TestImageOfAClass: an image that is not there is made as the class says, and waited for; one that
// is there is used if it is that of the class.
func TestImageOfAClass(t *testing.T) {
	class := map[string]string{"backingImage": "golden", "backingImageDataSourceType": "download",
		"backingImageDataSourceParameters": `{"url":"https://example.org/i"}`, "backingImageChecksum": imageSum}
	spec := client.BackingImageSpec{Name: "golden", SourceType: "download", ExpectedChecksum: imageSum,
		Parameters: map[string]string{"url": "https://example.org/i"}}
	golden := func(edit func(*resource.BackingImage)) map[string]*resource.BackingImage {
		b := &resource.BackingImage{Name: "golden", SourceType: "download", CurrentChecksum: imageSum,
			Parameters: map[string]string{"url": "https://example.org/i", "more": "x"}}
		if edit != nil {
			edit(b)
		}
		return map[string]*resource.BackingImage{"golden": b}
	}
	for _, tt := range []struct {
		name    string
		class   map[string]string
		images  map[string]*resource.BackingImage
		edit    func(*imaging)
		ordered int
		code    codes.Code
		says    string
	}{
		{"made", class, nil, nil, 1, codes.OK, ""},
		{"there", class, golden(nil), nil, 0, codes.OK, ""},
		{"made by another one first", class, nil, func(m *imaging) {
			m.refuses, m.overtaken = refusal("it already exists"), true
		}, 1, codes.OK, ""},
		{"refused", class, nil, func(m *imaging) { m.refuses = refusal("no such volume") }, 1, codes.InvalidArgument,
			"no such volume"},
		{"has failed", class, nil, func(m *imaging) { m.state, m.message = "failed", "404" }, 1, codes.Internal,
			"could not be made: disk d1: 404"},
		{"another checksum", class, golden(func(b *resource.BackingImage) { b.CurrentChecksum = "other" }), nil, 0,
			codes.InvalidArgument, "another checksum, other"},
		{"another URL", class, golden(func(b *resource.BackingImage) { b.Parameters["url"] = "http://x" }), nil, 0,
			codes.InvalidArgument, "another source"},
		{"another source", class, golden(func(b *resource.BackingImage) { b.SourceType = "upload" }), nil, 0,
			codes.InvalidArgument, "another source, upload"},
		{"no name", map[string]string{"backingImageDataSourceType": "download"}, nil, nil, 0, codes.InvalidArgument,
			"add parameter backingImage"},
		{"no word on its making", map[string]string{"backingImage": "golden"}, golden(nil), nil, 0, codes.OK, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newImaging()
			if tt.images != nil {
				m.images = tt.images
			}
			if tt.edit != nil {
				tt.edit(m)
			}
			c := newController(newFake())
			c.manager = m
			r := createRequest("pvc-1", gib)
			r.Parameters = tt.class
			_, err := c.CreateVolume(background, r)
			csitest.Wants(t, err, tt.code)
			if tt.says != "" {
				csitest.Says(t, err, tt.says)
			}
			if v := m.volumes["pvc-1"]; (v != nil) != (tt.code == codes.OK) || v != nil && v.BackingImage != "golden" {
				t.Errorf("%s: the volume is %+v", tt.name, v)
			}
			if len(m.ordered) != tt.ordered || len(m.ordered) > 0 && !sameImage(m.ordered[0], spec) {
				t.Errorf("%s: ordered %+v", tt.name, m.ordered)
			}
		})
	}
}

func sameImage(a, b client.BackingImageSpec) bool {
	return a.Name == b.Name && a.SourceType == b.SourceType && a.ExpectedChecksum == b.ExpectedChecksum &&
		maps.Equal(a.Parameters, b.Parameters)
}

// TestImageIsAwaited: while the image is being made there is no volume, and the caller is told why.
func TestImageIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newImaging()
		m.left, m.message = 1<<30, "waits for its turn"
		c := newController(newFake())
		c.manager = m
		r := createRequest("pvc-1", gib)
		r.Parameters = map[string]string{"backingImage": "golden", "backingImageDataSourceType": "download"}
		ctx, cancel := context.WithTimeout(background, 5*time.Second)
		defer cancel()
		_, err := c.CreateVolume(ctx, r)
		csitest.Wants(t, err, codes.DeadlineExceeded)
		csitest.Says(t, err, "in-progress waits for its turn")
		if len(m.volumes) > 0 {
			t.Errorf("%v", m.volumes)
		}
		m.left = 0
		if _, err := c.CreateVolume(background, r); err != nil || len(m.ordered) != 1 {
			t.Errorf("%v, ordered %+v", err, m.ordered)
		}
	})
}
