package azure

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// version is that of the protocol.
const version = "2020-10-02"

// signed are the headers whose values are signed without their names, in this order.
var signed = []string{"Content-Encoding", "Content-Language", "Content-Length", "Content-Md5", "Content-Type", "Date",
	"If-Modified-Since", "If-Match", "If-None-Match", "If-Unmodified-Since", "Range"}

// sign adds what proves that the request is that of the account ("Shared Key").
func (s *Store) sign(r *http.Request, now time.Time) {
	r.Header.Set("X-Ms-Date", now.UTC().Format(http.TimeFormat))
	r.Header.Set("X-Ms-Version", version)
	h := hmac.New(sha256.New, s.key)
	h.Write([]byte(toSign(r, s.account)))
	r.Header.Set("Authorization", "SharedKey "+s.account+":"+base64.StdEncoding.EncodeToString(h.Sum(nil)))
}

// toSign is the text that is signed: method, headers, headers of the protocol by name, path and
// query.
func toSign(r *http.Request, account string) string {
	var b strings.Builder
	b.WriteString(r.Method + "\n")
	for _, name := range signed {
		value := r.Header.Get(name)
		if name == "Content-Length" {
			value = number(r.ContentLength)
		}
		b.WriteString(value + "\n")
	}
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "x-ms-") {
			b.WriteString(lower + ":" + strings.Join(r.Header[name], ",") + "\n")
		}
	}
	b.WriteString("/" + account + r.URL.EscapedPath())
	query := r.URL.Query()
	for _, name := range slices.Sorted(maps.Keys(query)) {
		b.WriteString("\n" + strings.ToLower(name) + ":" + strings.Join(slices.Sorted(slices.Values(query[name])), ","))
	}
	return b.String()
}
