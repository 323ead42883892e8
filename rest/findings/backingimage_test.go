package findings_test

import (
	"strings"
	"testing"

	"ankole.storage/rest/findings"
	"ankole.storage/rest/resource"
)

// TestBackingImage is the table of what is said of an image that is not ready, and of none that is.
func TestBackingImage(t *testing.T) {
	type files = map[string]resource.BackingImageDiskFileStatus
	file := func(state, message string) resource.BackingImageDiskFileStatus {
		return resource.BackingImageDiskFileStatus{State: state, Message: message, Progress: 7}
	}
	const (
		place = "no disk has been chosen yet; if that lasts, its events name what disks lack: room, or the tags that it " +
			"asks for"
		again = "the download begins anew by itself after setting backing-image-recovery-wait-interval; an image with " +
			"another URL is created anew"
		send     = "send it by Upload… in the web UI, or: ankole backing-image upload golden FILE"
		more     = "another one is made when a disk has the room and the tags for it"
		of       = "copy on node-1, disk d: "
		noAnswer = "the process that keeps it does not answer"
		gone     = "copy on disk z, which no node reports: "
	)
	for name, c := range map[string]struct {
		source string
		copies int
		files  files
		want   string // a line each
	}{
		"ready":                    {"download", 1, files{"a": file("ready", "")}, ""},
		"more than are wanted":     {"download", 1, files{"a": file("ready", ""), "b": file("ready", "")}, ""},
		"no disk":                  {"download", 1, files{}, place},
		"a download fails":         {"download", 1, files{"a": file("failed", "answer 404")}, of + "answer 404\n" + again},
		"it fails, and is removed": {"download", 1, files{"a": file("failed-and-cleanup", "")}, of + "has failed\n" + again},
		"an upload is waited for":  {"upload", 1, files{"a": file("pending", "")}, "nobody has sent the file yet; " + send},
		"nobody takes it yet":      {"upload", 1, files{"a": file("pending", "no Pod")}, of + "no Pod"},
		"an upload is cut": {"upload", 1, files{"a": file("failed", "cut")},
			"the file has not come whole; " + send + "\n" + of + "cut"},
		"another one comes": {"download", 2, files{"a": file("ready", ""), "z": file("in-progress", "")},
			"1 of 2 copies ready; another one comes\n" + gone + "7 % have come"},
		"too few":               {"download", 3, files{"a": file("ready", "")}, "1 of 3 copies ready; " + more},
		"nobody answers":        {"download", 1, files{"a": file("unknown", "")}, of + noAnswer},
		"one of two has failed": {"download", 1, files{"a": file("ready", ""), "z": file("failed", "rot")}, gone + "rot"},
	} {
		b := &resource.BackingImage{Name: "golden", SourceType: c.source, MinNumberOfCopies: c.copies,
			DiskFileStatusMap: c.files}
		got := findings.BackingImage(b, map[string]string{"a": "node-1, disk d"})
		if strings.Join(got, "\n") != c.want {
			t.Errorf("%s: %q", name, got)
		}
		b.DeletionTimestamp = "now"
		if got := findings.BackingImage(b, nil); len(got) > 0 {
			t.Errorf("%s, being deleted: %q", name, got)
		}
	}
}
