package target

import (
	"errors"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		url  string
		want Target
		// is what String gives, url where it is "".
		is string
	}{
		{url: "s3://bucket@eu-west-1/a/b/", want: Target{Kind: S3, Bucket: "bucket", Region: "eu-west-1", Path: "/a/b"}},
		{url: "s3://bucket@us-east-1/", want: Target{Kind: S3, Bucket: "bucket", Region: "us-east-1", Path: "/"}},
		{url: "s3://bucket/a", want: Target{Kind: S3, Bucket: "bucket", Path: "/a"}, is: "s3://bucket/a/"},
		{url: "s3://my.bucket_1@dummy", want: Target{Kind: S3, Bucket: "my.bucket_1", Region: "dummy", Path: "/"},
			is: "s3://my.bucket_1@dummy/"},
		{url: "nfs://10.0.0.1:/export/b", want: Target{Kind: NFS, Host: "10.0.0.1", Path: "/export/b"}},
		{url: "nfs://server/export", want: Target{Kind: NFS, Host: "server", Path: "/export"}, is: "nfs://server:/export"},
		{url: "nfs://[fd00::1]:/e?nfsOptions=soft%2Ctimeo%3D100", is: "nfs://[fd00::1]:/e",
			want: Target{Kind: NFS, Host: "fd00::1", Path: "/e", Options: "soft,timeo=100"}},
		{url: "cifs://server/share/p?cifsOptions=vers%3D3.0", is: "cifs://server/share/p",
			want: Target{Kind: CIFS, Host: "server", Path: "/share/p", Options: "vers=3.0"}},
		{url: "azblob://box@core.windows.net/p/",
			want: Target{Kind: Azure, Bucket: "box", Region: "core.windows.net", Path: "/p"}},
		{url: "vfs:///var/backups", want: Target{Kind: VFS, Path: "/var/backups"}},
		{url: "vfs:///var/../backups//x/", want: Target{Kind: VFS, Path: "/backups/x"}, is: "vfs:///backups/x"},
	} {
		got, err := Parse(c.url)
		if err != nil || *got != c.want {
			t.Errorf("%s: %+v, %v, want %+v", c.url, got, err, c.want)
			continue
		}
		want := c.is
		if want == "" {
			want = c.url
		}
		if got.String() != want {
			t.Errorf("%s is named %s, want %s", c.url, got, want)
		}
		if again, err := Parse(got.URL()); err != nil || *again != *got {
			t.Errorf("%s, written as %s, is %+v, %v", c.url, got.URL(), again, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, url := range []string{"", "s3", "s3:bucket", "s3://", "s3:///path", "s3://b:80/", "s3://b@r:80/p",
		"ftp://server/p", "nfs://", "nfs:///p", "nfs://server:2049/p", "nfs://user@server:/p",
		"nfs://server:/p?cifsOptions=a",
		"cifs://server", "cifs://server/", "azblob:///p", "vfs://", "vfs:///", "vfs://host/p", "vfs://relative",
		"vfs:///p?x=1", "s3://b@r/p?nfsOptions=soft", "s3://b@r/%zz", "nfs://server:/p?nfsOptions=%zz", "s3://b@r/#f",
		"vfs:///a%00b", "s3://AKIA:hunter2@region/p", "vfs:///" + strings.Repeat("a", 5000)} {
		if got, err := Parse(url); !errors.Is(err, ErrURL) {
			t.Errorf("%.60s: %+v, %v", url, got, err)
		}
	}
}

func TestObjectURL(t *testing.T) {
	target, err := Parse("nfs://s:/p?nfsOptions=soft%2Ctimeo%3D9")
	if err != nil {
		t.Fatal(err)
	}
	const want = "nfs://s:/p?backup=backup-1&nfsOptions=soft%2Ctimeo%3D9&volume=vol-1"
	o := Object{Target: target, Volume: "vol-1", Backup: "backup-1"}
	if o.URL() != want {
		t.Errorf("%s, want %s", o.URL(), want)
	}
	for _, url := range []string{want, strings.ReplaceAll(want, "&", `\u0026`),
		"nfs://s:/p?backup=backup-1u0026volume=vol-1&nfsOptions=soft%2Ctimeo%3D9"} {
		got, err := ParseObject(url)
		if err != nil || *got.Target != *target || got.Volume != "vol-1" || got.Backup != "backup-1" {
			t.Errorf("%s: %+v, %v", url, got, err)
		}
	}
	if got, err := ParseObject("vfs:///p?volume=vol-1"); err != nil || got.Backup != "" {
		t.Errorf("%+v, %v", got, err)
	}
	for _, url := range []string{"vfs:///p", "vfs:///p?backup=backup-1", "vfs:///p?volume=..&backup=backup-1",
		"vfs:///p?volume=vol-1&backup=", "vfs:///p?volume=vol-1&backup=b-1&x=y", "vfs:///p?volume=a/b"} {
		if o, err := ParseObject(url); !errors.Is(err, ErrURL) {
			t.Errorf("%s: %+v, %v", url, o, err)
		}
	}
}

func FuzzParseObject(f *testing.F) {
	f.Add("nfs://s:/p?backup=backup-1&nfsOptions=soft&volume=vol-1")
	f.Add(`s3://b@r/p?backup=b-1\u0026volume=v-1`)
	f.Fuzz(func(t *testing.T, raw string) {
		o, err := ParseObject(raw)
		if err != nil {
			return
		}
		again, err := ParseObject(o.URL())
		if err != nil || *again.Target != *o.Target || again.Volume != o.Volume || again.Backup != o.Backup {
			t.Errorf("%q, written as %q, is %+v, %v", raw, o.URL(), again, err)
		}
	})
}

func FuzzParseImage(f *testing.F) {
	f.Add("nfs://s:/p?backingImage=img&nfsOptions=soft")
	f.Fuzz(func(t *testing.T, raw string) {
		i, err := ParseImage(raw)
		if err != nil {
			return
		}
		if again, err := ParseImage(i.URL()); err != nil || *again.Target != *i.Target || again.Name != i.Name {
			t.Errorf("%q, written as %q, is %+v, %v", raw, i.URL(), again, err)
		}
	})
}

func TestImageURL(t *testing.T) {
	target, err := Parse("nfs://s:/p?nfsOptions=soft")
	if err != nil {
		t.Fatal(err)
	}
	const want = "nfs://s:/p?backingImage=img.1&nfsOptions=soft"
	if i := (Image{target, "img.1"}); i.URL() != want {
		t.Errorf("%s, want %s", i.URL(), want)
	}
	for _, url := range []string{want, strings.ReplaceAll(want, "&", `\u0026`),
		"nfs://s:/p?nfsOptions=softu0026backingImage=img.1"} {
		if got, err := ParseImage(url); err != nil || *got.Target != *target || got.Name != "img.1" {
			t.Errorf("%s: %+v, %v", url, got, err)
		}
	}
	for _, url := range []string{"vfs:///p", "vfs:///p?volume=vol-1", "vfs:///p?backingImage=..",
		"vfs:///p?backingImage=img&volume=vol-1", "vfs:///p?backingImage=a/b"} {
		if i, err := ParseImage(url); !errors.Is(err, ErrURL) {
			t.Errorf("%s: %+v, %v", url, i, err)
		}
	}
}
