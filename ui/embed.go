// Package ui is the web UI for operators: a single page that asks /v1 for everything. The folder
// holds its npm project; this package has what "npm run build" makes of it, which tools/build.sh
// calls, and serves it. A build without Node embeds nothing and serves a page that says so.
//
// The page works under any path prefix: it names its files relative to itself, finds /v1 beside
// itself, and keeps its own places behind the "#" of the address, which no server sees.
package ui

import (
	"bytes"
	"compress/gzip"
	"embed"
	"io"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
)

// dist is what the build makes: every file compressed, with .gz behind its name. The one file that
// git keeps there lets a build without Node compile.
//
//go:embed all:dist
var dist embed.FS

//go:embed absent.html
var absent []byte

// policy lets the page run its own files alone, talk to this server alone, and stand in no frame.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"form-action 'none'; frame-ancestors 'none'; base-uri 'none'"

// Folder is where the files of the page are, relative to it. Their names hold a digest of their
// content.
const Folder = "assets"

// unchanging is for files whose name changes with their content, anew for what has one name.
const (
	unchanging = "public, max-age=31536000, immutable"
	anew       = "no-cache"
)

// Built reports whether the page is in this program.
func Built() bool {
	_, err := dist.ReadFile("dist/index.html.gz")
	return err == nil
}

// Page serves the page itself, or says how it is built where it is not.
func Page() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if packed, err := dist.ReadFile("dist/index.html.gz"); err == nil {
			write(w, r, "index.html", packed, anew)
			return
		}
		secure(w.Header())
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Cache-Control", anew)
		_, _ = w.Write(absent)
	})
}

// File serves a file of Folder; ok is false if there is none.
func File(name string) (h http.Handler, ok bool) {
	packed, err := dist.ReadFile(path.Join("dist", Folder, path.Base(name)) + ".gz")
	if err != nil {
		return nil, false
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { write(w, r, name, packed, unchanging) }), true
}

func secure(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
}

// write sends a file as it is kept, or unpacked to clients that do not take it so.
func write(w http.ResponseWriter, r *http.Request, name string, packed []byte, caching string) {
	h := w.Header()
	secure(h)
	h.Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
	h.Set("Cache-Control", caching)
	h.Set("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		h.Set("Content-Length", strconv.Itoa(len(packed)))
		_, _ = w.Write(packed)
		return
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		http.Error(w, "the file is damaged: "+err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = io.Copy(w, unpacked)
}
