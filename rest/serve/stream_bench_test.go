package serve_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ankole.storage/rest"
	"ankole.storage/rest/apitest"
	"ankole.storage/rest/serve"
)

const benchVolumes = 1000

// processorTime is what this process has used so far: server, client and cache.
func processorTime(t testing.TB) time.Duration {
	var u syscall.Rusage
	apitest.Must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// frames is a client of a stream that throws away what it reads, so that it costs next to nothing.
type frames struct {
	r    *bufio.Reader
	read int64
}

// newFrames opens a stream. It ends with the benchmark.
func newFrames(b *testing.B, url, path, headers string) *frames {
	b.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	apitest.Must(b, err)
	b.Cleanup(func() { conn.Close() })
	apitest.Must(b, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n%s\r\n", path, headers)
	apitest.Must(b, err)
	f := &frames{r: bufio.NewReaderSize(conn, 256<<10)}
	resp, err := http.ReadResponse(f.r, nil)
	apitest.Must(b, err)
	if resp.StatusCode != http.StatusSwitchingProtocols {
		b.Fatal(resp.Status)
	}
	return f
}

// message reads one message, in however many frames.
func (f *frames) message(b *testing.B) {
	for {
		var head [2]byte
		_, err := io.ReadFull(f.r, head[:])
		apitest.Must(b, err)
		size := int64(head[1] & 0x7f)
		switch size {
		case 126:
			var long [2]byte
			_, err = io.ReadFull(f.r, long[:])
			size = int64(binary.BigEndian.Uint16(long[:]))
		case 127:
			var long [8]byte
			_, err = io.ReadFull(f.r, long[:])
			size = int64(binary.BigEndian.Uint64(long[:]))
		}
		apitest.Must(b, err)
		_, err = f.r.Discard(int(size))
		apitest.Must(b, err)
		f.read += size
		const last, ping = 0x80, 0x9
		if head[0]&last != 0 && head[0]&0xf != ping {
			return
		}
	}
}

// looks makes the messages of a stream that nothing tells of changes, without a connection.
func (f *fixture) looks(b *testing.B, name string, deltas bool, next func()) (bytes int64, used time.Duration, n int) {
	q := serve.NewRequest(b.Context(), f.Server, f.URL, "")
	one := serve.NewLooker(f.Server, q, apitest.Tables().Streams[name], deltas)
	var buffer []byte
	look := func() {
		list, err := one.Look()
		apitest.Must(b, err)
		buffer, err = one.Message(buffer[:0], list)
		apitest.Must(b, err)
		one.SetSent(list)
	}
	look()
	used = processorTime(b)
	for b.Loop() {
		next()
		look()
		bytes += int64(len(buffer))
		n++
	}
	return bytes, processorTime(b) - used, n
}

// BenchmarkStreamChange changes one of 1,000 volumes of three replicas at a time and reads the
// message of it, whole and as deltas, as it is and compressed. ns/op has the pause between messages
// in it; cpu-ns/change is the processor time of server, cache and client together.
func BenchmarkStreamChange(b *testing.B) {
	objects, engines := apitest.ManyVolumes(benchVolumes)
	f, c := newLeader(b, objects...)
	const deflate = "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; " +
		"client_no_context_takeover\r\n"
	changes := 0 // of all forms: each is one that the view shows
	for _, form := range []struct{ name, path, headers string }{
		{"whole", "/v1/ws/volumes", ""}, {"whole-deflate", "/v1/ws/volumes", deflate},
		{"deltas", "/v1/ws/volumes?deltas=true", ""}, {"deltas-deflate", "/v1/ws/volumes?deltas=true", deflate},
	} {
		b.Run(form.name, func(b *testing.B) {
			stream := newFrames(b, f.URL, form.path, form.headers)
			stream.message(b)
			before := changes
			used, read := processorTime(b), stream.read
			for b.Loop() {
				e := engines[changes%len(engines)]
				changes++
				e.Status.Endpoint = fmt.Sprintf("/dev/longhorn/%s-%d", e.Spec.VolumeName, changes)
				c.Put(b, e, false)
				stream.message(b)
			}
			n := float64(changes - before)
			b.ReportMetric(float64(processorTime(b)-used)/n, "cpu-ns/change")
			b.ReportMetric(float64(stream.read-read)/n, "bytes/change")
		})
	}
}

// BenchmarkStreams changes one object of each stream at a time in a cluster of 1,000 volumes (see
// populations), and reads the message of it. The stream of events looks once in 15 s instead: what
// is measured there is one look that finds a change.
func BenchmarkStreams(b *testing.B) {
	everything, _ := apitest.ManyVolumes(benchVolumes)
	all := populations()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if name != "volumes" && name != "volumeattachments" { // those are in everything
			everything = append(everything, all[name].objects...)
		}
	}
	c := apitest.NewLeaderCache(b, everything...)
	f := newFixtureWith(b, interceptor.Funcs{}, func(cfg *rest.Config) {
		cfg.Reader, cfg.Live = c, c
		cfg.Informers = func() cache.Informers { return c }
	})
	changes := 0
	for _, name := range slices.Sorted(maps.Keys(apitest.Tables().Streams)) {
		for form, query := range map[string]string{"whole": "", "deltas": "?deltas=true"} {
			b.Run(name+"/"+form, func(b *testing.B) {
				p := all[name]
				next := func() {
					o := p.objects[changes%len(p.objects)]
					changes++
					p.change(o, changes)
					c.Put(b, o, false)
				}
				var used time.Duration
				var read, before int64
				n := 0
				if len(apitest.Tables().Streams[name].Kinds) == 0 {
					read, used, n = f.looks(b, name, query != "", next)
				} else {
					stream := newFrames(b, f.URL, "/v1/ws/"+name+query, "")
					stream.message(b)
					used, before = processorTime(b), stream.read
					for b.Loop() {
						next()
						stream.message(b)
						n++
					}
					used, read = processorTime(b)-used, stream.read-before
				}
				b.ReportMetric(float64(used)/float64(n), "cpu-ns/change")
				b.ReportMetric(float64(read)/float64(n), "bytes/change")
			})
		}
	}
}
