package ssync

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// bounded is a file of 8 KiB that remembers whether anything was outside of it.
type bounded struct {
	t    *testing.T
	size int64
}

func (b *bounded) Resize(size int64) error { b.size = size; return nil }

func (b *bounded) WriteAt(p []byte, off int64) error { return b.Punch(off, int64(len(p))) }

func (b *bounded) Punch(off, n int64) error {
	if off < 0 || n <= 0 || n > b.size || off > b.size-n {
		b.t.Errorf("%d bytes from %d on of a file of %d", n, off, b.size)
	}
	return nil
}

// FuzzReceiver: no request of whoever has the token leads out of the file, ends the process or
// holds it up, and none of a stranger is answered.
func FuzzReceiver(f *testing.F) {
	f.Add("POST", "writeData", "begin=0&end=3", "abc")
	f.Add("POST", "sendHole", "begin=0&end=8192", "")
	f.Add("GET", "open", "begin=0&end=4096", "")
	f.Add("POST", "close", "checksumMethod=md5&checksum=1", "")
	f.Add("POST", "writeData", "begin=9223372036854775807&end=9223372036854775807", "x")
	f.Fuzz(func(t *testing.T, method, path, query, body string) {
		if u, err := url.ParseRequestURI(prefix + path + "?" + query); err != nil || u.Host != "" ||
			strings.ContainsAny(method, " \t\r\n") || method == "" || strings.ContainsAny(path+query, " \r\n") {
			return // net/http gives no such request to a handler
		}
		for _, word := range []string{"token", "another"} {
			r := NewReceiver(&bounded{t: t}, "token", 8192, func(done, total int64) {})
			ask := func(method, path, query, body string) int {
				q, err := http.NewRequestWithContext(t.Context(), method, prefix+path+"?"+query, strings.NewReader(body))
				if err != nil {
					return 0
				}
				q.Header.Set("Authorization", Authorization(word))
				w := httptest.NewRecorder()
				r.ServeHTTP(w, q)
				return w.Code
			}
			opened := ask(http.MethodGet, "open", "begin=0&end=8192", "")
			code := ask(method, path, query, body)
			r.Drain()
			if word != "token" && (opened != http.StatusUnauthorized || code != http.StatusUnauthorized && code != 0) {
				t.Errorf("a stranger is answered with %d and %d", opened, code)
			}
		}
	})
}
