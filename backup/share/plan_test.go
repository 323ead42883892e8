package share

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"ankole.storage/backup/target"
)

const at = "10.0.0.1"

func planned(t *testing.T, url string, c target.Credentials) ([]attempt, error) {
	t.Helper()
	place, err := target.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	return plan(place, c, netip.MustParseAddr(at))
}

// TestPlan: URL and Secret, and the calls of mount(2) that follow: type, source and options.
func TestPlan(t *testing.T) {
	person := target.Credentials{target.KeyCIFSUser: "me", target.KeyCIFSPassword: "a,b"}
	for _, c := range []struct {
		url   string
		want  []string
		flags uintptr
	}{
		{url: "nfs://server:/export/b", want: []string{
			"nfs4 server:/export/b nfsvers=4.2,actimeo=1,soft,timeo=300,addr=10.0.0.1",
			"nfs4 server:/export/b nfsvers=4.1,actimeo=1,soft,timeo=300,addr=10.0.0.1",
			"nfs4 server:/export/b nfsvers=4.0,actimeo=1,soft,timeo=300,addr=10.0.0.1"}},
		{url: "nfs://server:/b?nfsOptions=soft,timeo=9,vers=4.1", want: []string{
			"nfs4 server:/b soft,timeo=9,vers=4.1,addr=10.0.0.1"}},
		{url: "nfs://server:/b?nfsOptions=nfsvers=4,port=2050,proto=tcp", want: []string{
			"nfs4 server:/b nfsvers=4,port=2050,proto=tcp,addr=10.0.0.1"}},
		{url: "nfs://server:/b?nfsOptions=minorversion=1,_netdev,noatime,retry=2,exec,dev,suid", flags: unix.MS_NOATIME,
			want: []string{"nfs4 server:/b minorversion=1,addr=10.0.0.1"}},
		{url: "nfs://[fd00::1]:/b?nfsOptions=vers=4.2", want: []string{"nfs4 [fd00::1]:/b vers=4.2,addr=10.0.0.1"}},
		{url: "cifs://server/share", want: []string{
			`cifs //server/share ip=10.0.0.1,unc=\\server\share,user=me,pass=a,,b,soft`}},
		{url: "cifs://server/share/a/b?cifsOptions=vers=3.0,rsize=65536", want: []string{
			`cifs //server/share/a/b ip=10.0.0.1,unc=\\server\share,prefixpath=a/b,user=me,pass=a,,b,vers=3.0,rsize=65536`}},
	} {
		all, err := planned(t, c.url, person)
		var got []string
		for _, a := range all {
			got = append(got, a.fsType+" "+a.source+" "+a.data)
			if want := unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | c.flags; a.flags != want {
				t.Errorf("%s: flags %x, want %x", c.url, a.flags, want)
			}
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v", c.url, strings.Join(got, "\n"), err)
		}
	}
	all, err := planned(t, "cifs://server/share?cifsOptions=guest", nil)
	if err != nil || strings.Contains(all[0].data, "user=") {
		t.Errorf("a guest: %+v, %v", all, err)
	}
	for url, want := range map[string]string{"nfs://s:/p": "s:2049", "cifs://s/p": "s:445",
		"nfs://[fd00::1]:/p?nfsOptions=soft,port=2050": "[fd00::1]:2050"} {
		place, err := target.Parse(url)
		if err != nil || server(place) != want {
			t.Errorf("%s is asked at %s, %v", url, server(place), err)
		}
	}
}

func TestPlanRefuses(t *testing.T) {
	for _, c := range []struct {
		url, says string
		c         target.Credentials
	}{
		{"nfs://s:/p?nfsOptions=vers=3", "version", nil},
		{"nfs://s:/p?nfsOptions=nfsvers=41", "version", nil},
		{"nfs://s:/p?nfsOptions=soft,proto=udp", "by TCP", nil},
		{"nfs://s:/p?nfsOptions=soft,addr=10.0.0.9", `"addr"`, nil},
		{"nfs://s:/p?nfsOptions=clientaddr=10.0.0.9", `"clientaddr"`, nil},
		{"cifs://s/p", "no CIFS_USERNAME", nil},
		{"cifs://s/p?cifsOptions=soft", "no CIFS_USERNAME", target.Credentials{target.KeyCIFSPassword: "x"}},
		{"cifs://s/p?cifsOptions=guest,ip=1.2.3.4", `"ip"`, nil},
		{"cifs://s/p?cifsOptions=password=x", "in the Secret", target.Credentials{target.KeyCIFSUser: "me"}},
		{"cifs://s/p,sec=none", "comma", target.Credentials{target.KeyCIFSUser: "me"}},
		{"cifs://s/p/q,sec=none", "comma", target.Credentials{target.KeyCIFSUser: "me"}},
		{"cifs://s/p", "comma", target.Credentials{target.KeyCIFSUser: "me,ip=1.2.3.4"}},
		{"cifs://s/p", "character", target.Credentials{target.KeyCIFSUser: "me", target.KeyCIFSPassword: "a\nb"}},
	} {
		if got, err := planned(t, c.url, c.c); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %+v, %v; want %s", c.url, got, err, c.says)
		}
	}
}

// TestNothingSecretIsTold by what is said of options and Secrets.
func TestNothingSecretIsTold(t *testing.T) {
	const secret = "hunter2"
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SampledFrom([]string{"vers=", "password=", "proto=", "addr=", "nfsvers=4", "port=", ""}).Draw(t, "key")
		place := &target.Target{Kind: rapid.SampledFrom([]target.Kind{target.NFS, target.CIFS}).Draw(t, "kind"), Host: "s",
			Path: "/p", Options: "soft," + key + rapid.SampledFrom([]string{"", secret, secret + "=1"}).Draw(t, "value")}
		c := target.Credentials{target.KeyCIFSUser: rapid.SampledFrom([]string{"", secret, secret + ","}).Draw(t, "user"),
			target.KeyCIFSPassword: rapid.SampledFrom([]string{"", secret, secret + "\n"}).Draw(t, "password")}
		_, err := plan(place, c, netip.MustParseAddr(at))
		for _, told := range []error{err, explain(place, unix.EACCES), explain(place, unix.EIO)} {
			if told != nil && strings.Contains(told.Error(), secret) {
				t.Fatal(told)
			}
		}
	})
}

// TestNextAttempt: another version is tried where this one is not spoken, and nothing else.
func TestNextAttempt(t *testing.T) {
	for err, want := range map[error]bool{unix.EPROTONOSUPPORT: true, unix.EINVAL: true, unix.ENODEV: false,
		unix.EACCES: false, unix.ENOENT: false, unix.EPERM: false, unix.ETIMEDOUT: false, unix.ECONNREFUSED: false} {
		if another(err) != want {
			t.Errorf("%v: another attempt %v", err, !want)
		}
	}
	share := &target.Target{Kind: target.CIFS, Host: "s", Path: "/p"}
	for err, says := range map[error]string{unix.ENODEV: "load its module cifs", unix.EACCES: "user and password",
		unix.ENOENT: "no such path", unix.EPROTONOSUPPORT: "version", unix.EOPNOTSUPP: "version",
		unix.EINVAL: "option", unix.EPERM: "privileged", unix.EIO: "input/output"} {
		if got := explain(share, err); !errors.Is(got, err) || !strings.Contains(got.Error(), says) ||
			!strings.Contains(got.Error(), fmt.Sprint(share)) {
			t.Errorf("%v, want %s", got, says)
		}
	}
}
