package backingimage_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/rest"
	"ankole.storage/rest/apitest"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/resttest"
)

const imageUUID = "0a1b2c3d"

// image is one with a copy in a state on each of some disks.
func image(kind lh.BackingImageSourceType, copies int, states map[string]lh.BackingImageState) *lh.BackingImage {
	b := &lh.BackingImage{ObjectMeta: resttest.Meta("iso"),
		Spec: lh.BackingImageSpec{SourceType: kind, MinNumberOfCopies: copies, DataEngine: "v1",
			DiskFileSpecMap: map[string]lh.BackingImageDiskFileSpec{}},
		Status: lh.BackingImageStatus{UUID: imageUUID, DiskFileStatusMap: map[string]lh.BackingImageDiskFileStatus{}}}
	if kind == lh.BackingImageSourceTypeDownload {
		b.Spec.SourceParameters = map[string]string{"url": "http://h/i"}
	}
	for disk, state := range states {
		b.Spec.DiskFileSpecMap[disk] = lh.BackingImageDiskFileSpec{}
		b.Status.DiskFileStatusMap[disk] = lh.BackingImageDiskFileStatus{State: state}
	}
	return b
}

func imageSource(ip string, transferred bool) *lh.BackingImageDataSource {
	return &lh.BackingImageDataSource{ObjectMeta: resttest.Meta("iso"),
		Spec:   lh.BackingImageDataSourceSpec{UUID: imageUUID, DiskUUID: "d1", FileTransferred: transferred},
		Status: lh.BackingImageDataSourceStatus{IP: ip}}
}

func TestBackingImageCreate(t *testing.T) {
	f := newFixture(t)
	a := f.Do("POST", "/v1/backingimages",
		`{"name":"iso","sourceType":"download","parameters":{"url":"https://example.org/i"},`+
			`"minNumberOfCopies":2,"nodeSelector":["fast"]}`)
	if a.Status != http.StatusOK || a.JSON["type"] != resource.TypeBackingImage || a.JSON["name"] != "iso" ||
		a.JSON["sourceType"] != "download" || a.JSON["minNumberOfCopies"] != 2.0 {
		t.Fatalf("%d %s", a.Status, a.Text)
	}
	var b lh.BackingImage
	f.Read("iso", &b)
	if b.Spec.SourceParameters["url"] != "https://example.org/i" || b.Spec.NodeSelector[0] != "fast" {
		t.Errorf("%+v", b.Spec)
	}
	for body, why := range map[string]string{
		`{"name":"iso","sourceType":"upload","parameters":{}}`:                              "already exists",
		`{"name":"other","sourceType":"clone","parameters":{}}`:                             "invalid parameter backing-image for source type clone",
		`{"name":"_","sourceType":"upload","parameters":{}}`:                                "invalid name _ for backing image",
		`{"name":"other","sourceType":"download"}`:                                          "invalid parameter url for source type download",
		`{"name":"other","sourceType":"upload","secret":"key"}`:                             "give both, or none",
		`{"name":"other","sourceType":"upload","expectedChecksum":"ab"}`:                    "give a SHA-512",
		`{"name":"other","sourceType":"upload","minNumberOfCopies":-1}`:                     "should be at least 1",
		`{"name":"other","sourceType":"download","parameters":{"url":"http://127.0.0.1/"}}`: "address of the node itself",
		"": "EOF",
	} {
		a := f.Do("POST", "/v1/backingimages", body)
		if a.Status < 400 || !strings.Contains(a.Text, why) {
			t.Errorf("%s: %d %s", body, a.Status, a.Text)
		}
	}
}

func TestBackingImageDelete(t *testing.T) {
	used := &lh.Replica{ObjectMeta: resttest.Meta("v-r-1"), Spec: lh.ReplicaSpec{BackingImage: "iso"}}
	f := newFixture(t, image("upload", 1, nil), used)
	f.Refused(f.Do("DELETE", "/v1/backingimages/iso?action=backingImageCleanup", ""), 500,
		"cannot delete backing image iso since there are replicas using it")
	f = newFixture(t, image("upload", 1, nil))
	if a := f.Do("DELETE", "/v1/backingimages/iso?action=backingImageCleanup", ""); a.Status != http.StatusOK ||
		a.Text != "" {
		t.Errorf("%d %q", a.Status, a.Text)
	}
	f.Refused(f.Do("DELETE", "/v1/backingimages/iso", ""), 404, "unable to delete backing image iso")
}

func TestUpdateMinNumberOfCopies(t *testing.T) {
	f := newFixture(t, image("upload", 1, nil))
	post := func(body string) apitest.Answer {
		return f.Do("POST", "/v1/backingimages/iso?action=updateMinNumberOfCopies", body)
	}
	if a := post(`{"minNumberOfCopies":3}`); a.Status != http.StatusOK || a.JSON["minNumberOfCopies"] != 3.0 {
		t.Errorf("%d %s", a.Status, a.Text)
	}
	f.Refused(post(`{"minNumberOfCopies":0}`), 500, "it should be at least 1")
	f.Refused(post(`{"minNumberOfCopies":"x"}`), 500, "minNumberOfCopies")
	f.Refused(f.Do("POST", "/v1/backingimages/none?action=updateMinNumberOfCopies", `{"minNumberOfCopies":3}`), 404,
		"none")
}

// TestBackingImageCleanup: all copies that are named go, or none.
func TestBackingImageCleanup(t *testing.T) {
	states := map[string]lh.BackingImageState{"d1": "ready", "d2": "ready", "d3": "failed", "d4": "ready"}
	used := &lh.Replica{ObjectMeta: resttest.Meta("v-r-1"), Spec: lh.ReplicaSpec{BackingImage: "iso", DiskID: "d4"}}
	for _, tt := range []struct {
		name   string
		copies int
		source client.Object
		disks  string
		left   int
		want   string
	}{
		{"one", 1, imageSource("", true), `["d1"]`, 3, ""},
		{"none", 1, imageSource("", true), `[]`, 4, ""},
		{"a failed one, of too few", 9, imageSource("", true), `["d3"]`, 3, ""},
		{"as many as may go", 1, imageSource("", true), `["d1","d2"]`, 2, ""},
		{"too many", 2, imageSource("", true), `["d1","d2"]`, 4, "1 of 3 copies would be left, which is fewer than its " +
			"minNumberOfCopies, 2"},
		{"one in use", 1, imageSource("", true), `["d1","d4"]`, 4, "there is at least one replica using it: v-r-1"},
		{"one that is none", 1, imageSource("", true), `["d1","d9"]`, 4, "it has no copy on disk d9"},
		{"the first one, which comes", 1, imageSource("10.0.0.1", false), `["d1"]`, 4, "its first file is made there"},
	} {
		f := newFixture(t, image("upload", tt.copies, states), used, tt.source)
		a := f.Do("POST", "/v1/backingimages/iso?action=backingImageCleanup", `{"disks":`+tt.disks+`}`)
		if ok := a.Status == http.StatusOK; ok != (tt.want == "") || !strings.Contains(a.Text, tt.want) {
			t.Errorf("%s: %d %s", tt.name, a.Status, a.Text)
		}
		var b lh.BackingImage
		if f.Read("iso", &b); len(b.Spec.DiskFileSpecMap) != tt.left {
			t.Errorf("%s: %d copies are left, want %d", tt.name, len(b.Spec.DiskFileSpecMap), tt.left)
		}
	}
}

// pods plays the processes of backing images, at every address.
func pods(t *testing.T, h http.HandlerFunc) func(*rest.Config) {
	t.Helper()
	web := httptest.NewServer(h)
	t.Cleanup(web.Close)
	return func(c *rest.Config) {
		c.DialPod = func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", web.Listener.Addr().String())
		}
	}
}

// TestBackingImageUpload: the body reaches the data source as it is, and its refusal the user.
func TestBackingImageUpload(t *testing.T) {
	var asked, got string
	status := http.StatusOK
	way := pods(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // what is missing is not equal
		asked, got = r.Host+" "+r.URL.String()+" "+r.Header.Get("Content-Type"), string(body)
		if status != http.StatusOK {
			http.Error(w, "it has another checksum", status)
		}
	})
	post := func(f *fixture, query string) apitest.Answer {
		return f.Do("POST", "/v1/backingimages/iso?action=upload"+query, "the body", "Content-Type",
			"multipart/form-data; boundary=x")
	}
	f := newFixtureWith(t, interceptor.Funcs{}, way, image("upload", 1, nil), imageSource("10.0.0.1", false))
	if a := post(f, "&size=8"); a.Status != http.StatusOK || a.Text != "" || got != "the body" ||
		asked != "10.0.0.1:8000 /v1/file?action=upload&size=8 multipart/form-data; boundary=x" {
		t.Errorf("%d %s; asked %s, got %q", a.Status, a.Text, asked, got)
	}
	status = http.StatusInternalServerError
	f.Refused(post(f, "&size=8"), 500, "it has another checksum")
	for _, size := range []string{"", "&size=", "&size=0", "&size=-1", "&size=x"} {
		f.Refused(post(f, size), 500, "is not its number of bytes")
	}
	for _, tt := range []struct {
		image  *lh.BackingImage
		source client.Object
		want   string
	}{
		{image("download", 1, nil), imageSource("10.0.0.1", false), "its source type is download"},
		{image("upload", 1, nil), imageSource("", false), "backing image data source pod is not ready for uploading"},
		{image("upload", 1, nil), resttest.Volume("v")[0], "backing image data source pod is not ready for uploading"},
		{image("upload", 1, nil), imageSource("", true), "it was uploaded before"},
	} {
		f := newFixtureWith(t, interceptor.Funcs{}, way, tt.image, tt.source)
		f.Refused(post(f, "&size=8"), 500, tt.want)
	}
	f = newFixture(t, image("upload", 1, nil), imageSource("10.0.0.1", false))
	f.Refused(post(f, "&size=8"), 500, "no way to the processes of backing images")
}

func imageManager(name, ip string, sending int, state lh.BackingImageState) *lh.BackingImageManager {
	return &lh.BackingImageManager{ObjectMeta: resttest.Meta(name),
		Status: lh.BackingImageManagerStatus{IP: ip, CurrentState: lh.BackingImageManagerStateRunning,
			BackingImageFileMap: map[string]lh.BackingImageFileInfo{"iso": {UUID: imageUUID, State: state,
				SendingReference: sending}}}}
}

// TestBackingImageDownload: the file comes from a manager that has it ready, as that sends it.
func TestBackingImageDownload(t *testing.T) {
	way := pods(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Host != "10.0.0.2:8001":
			http.Error(w, "another manager", http.StatusTeapot)
		case r.URL.Path == "/v1/files":
			_, _ = io.WriteString(w, `[{"filePath":"/data/x","uuid":"11111111"},{"filePath":"/data/i","uuid":"0a1b2c3d"}]`)
		case r.URL.EscapedPath() == "/v1/files/%2Fdata%2Fi/download":
			w.Header().Set("Content-Disposition", `attachment; filename="iso.gz"`)
			w.Header().Set("Content-Type", "application/octet-stream")
			_, _ = io.WriteString(w, "packed")
		default:
			http.NotFound(w, r)
		}
	})
	b := image("upload", 1, map[string]lh.BackingImageState{"d1": "ready"})
	f := newFixtureWith(t, interceptor.Funcs{}, way, b, imageManager("a", "10.0.0.1", 3, "ready"),
		imageManager("b", "10.0.0.2", 1, "ready"), imageManager("c", "10.0.0.3", 0, "in-progress"))
	a := f.Do("GET", "/v1/backingimages/iso/download", "")
	if a.Status != http.StatusOK || a.Text != "packed" || a.Header.Get("Content-Type") != "application/octet-stream" ||
		a.Header.Get("Content-Disposition") != `attachment; filename="iso.gz"` {
		t.Errorf("%d %q %v", a.Status, a.Text, a.Header)
	}
	f = newFixtureWith(t, interceptor.Funcs{}, way, b, imageManager("c", "10.0.0.3", 0, "in-progress"))
	f.Refused(f.Do("GET", "/v1/backingimages/iso/download", ""), 500, "failed to find a default backing image manager")
	f.Refused(f.Do("GET", "/v1/backingimages/none/download", ""), 404, "none")
	f = newFixtureWith(t, interceptor.Funcs{}, way, b, imageManager("a", "10.0.0.1", 0, "ready"))
	f.Refused(f.Do("GET", "/v1/backingimages/iso/download", ""), 500, "another manager")
}

// TestImageBackupIsOrdered: a target has one backup of an image, and is the default one where none
// is named.
func TestImageBackupIsOrdered(t *testing.T) {
	target := func(name, url string) *lh.BackupTarget {
		return &lh.BackupTarget{ObjectMeta: resttest.Meta(name), Spec: lh.BackupTargetSpec{BackupTargetURL: url},
			Status: lh.BackupTargetStatus{Available: true}}
	}
	f := newFixture(t, image("upload", 1, nil), target("default", "s3://b@r/"), target("second", "s3://c@r/"))
	const order = "/v1/backingimages/iso?action=backupBackingImageCreate"
	for _, tt := range []struct{ body, name, on string }{{`{}`, naming.BackupImageName("iso", "default"), "default"},
		{`{"backupTargetName":"second","labels":{"k":"v"}}`, naming.BackupImageName("iso", "second"), "second"}} {
		if a := f.Do("POST", order, tt.body); a.Status != http.StatusOK || a.Text != "" {
			t.Fatalf("%d %q", a.Status, a.Text)
		}
		var made lh.BackupBackingImage
		f.Read(tt.name, &made)
		if s := made.Spec; !s.UserCreated || s.BackingImage != "iso" || s.BackupTargetName != tt.on ||
			(s.Labels["k"] == "v") != (tt.on == "second") {
			t.Errorf("%+v", s)
		}
	}
	f.Refused(f.Do("POST", order, `{}`), 500, "unable to back up backing image iso")
	f.Refused(f.Do("POST", "/v1/backingimages/none?action=backupBackingImageCreate", `{}`), 404, "none")
}
