package work

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"ankole.storage/backup"
	"ankole.storage/backup/worker"
)

const imageBytes = 5<<20 + 512

func imageOrder(t *testing.T, dir, do string, v worker.Volume, change ...func(*worker.Job)) (*worker.Image, error) {
	t.Helper()
	j := job(dir, v)
	j.Order.Do, j.Order.SizeBytes, j.Order.Image = do, imageBytes, "img"
	j.Order.CreateImage = backup.ImageCreateOptions{Image: "img", Checksum: strings.Repeat("ab", 64),
		Labels: map[string]string{"k": "v"}}
	j.Order.RestoreImage = backup.ImageRestoreOptions{Image: "img"}
	for _, c := range change {
		c(&j)
	}
	out, err := worker.Run(t.Context(), j)
	i := &worker.Image{}
	if err == nil && do != worker.DeleteImage {
		err = json.Unmarshal(out, i)
	}
	return i, err
}

// TestImages: worker processes back an image up whose end is within a piece, tell of it, restore it
// and delete it.
func TestImages(t *testing.T) {
	t.Parallel()
	dir, v := t.TempDir(), newMemory()
	v.data = v.data[:imageBytes]
	v.changed[""] = []backup.Extent{{Offset: 0, Length: 4096}, {Offset: imageBytes - 512, Length: 512}}
	clear(v.data[2<<20 : 4<<20])
	made, err := imageOrder(t, dir, worker.CreateImage, v)
	if err != nil || v.read != 3<<20+512 {
		t.Fatalf("%d bytes were read: %v", v.read, err)
	}
	shown, err := imageOrder(t, dir, worker.InspectImage, nil)
	if err != nil || shown.URL != "vfs://"+dir+"?backingImage=img" || shown.Size != imageBytes ||
		shown.Labels["k"] != "v" || shown.Checksum != made.Checksum ||
		shown.Created.IsZero() || shown.CompressionMethod != "lz4" {
		t.Errorf("%+v, %v", shown, err)
	}
	j := job(dir, nil)
	j.Order.Do = worker.ListImages
	if out, err := worker.Run(t.Context(), j); err != nil || string(out) != `["img"]` {
		t.Errorf("%s, %v", out, err)
	}
	got, last := &memory{data: make([]byte, imageBytes)}, worker.Report{}
	if _, err = imageOrder(t, dir, worker.RestoreImage, got, func(j *worker.Job) {
		j.Report = func(_ context.Context, r worker.Report) error { last = r; return nil }
	}); err != nil || !bytes.Equal(got.data, v.data) || !last.Begun || last.Restoring.SizeBytes != imageBytes {
		t.Errorf("restored otherwise, or not: %v, told at last %+v", err, last)
	}
	j.Order.Do, j.Order.Image = worker.Verify, "img"
	out, err := worker.Run(t.Context(), j)
	if err != nil || !strings.Contains(string(out), `"Backups":["img"]`) || !strings.Contains(string(out), `"Blocks":2,`) {
		t.Errorf("verified: %s, %v", out, err)
	}
	if _, err := imageOrder(t, dir, worker.CreateImage, v, func(j *worker.Job) {
		j.Order.CreateImage.Checksum = strings.Repeat("cd", 64)
	}); !errors.Is(err, backup.ErrExists) {
		t.Errorf("another image of the name: %v", err)
	}
	if _, err := imageOrder(t, dir, worker.DeleteImage, nil); err != nil {
		t.Error(err)
	}
	for _, do := range []string{worker.DeleteImage, worker.InspectImage, worker.RestoreImage} {
		if _, err := imageOrder(t, dir, do, got); !errors.Is(err, backup.ErrNotFound) {
			t.Errorf("%s of what is not there: %v", do, err)
		}
	}
}
