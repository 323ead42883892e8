package serve

import (
	_ "embed"
	"encoding/json"
	"html/template"
	"io"
	"net/http"
	"strings"
)

// explorerPolicy lets the page run nothing but its own script and talk to nobody but this server.
const explorerPolicy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'self' 'unsafe-inline'; connect-src " +
	"'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"

//go:embed explorer.html
var explorerText string

var explorerPage = template.Must(template.New("explorer").Parse(explorerText))

// wantsHTML reports whether a person with a browser asks: one that takes anything, or
// ?_format=html.
func wantsHTML(r *http.Request) bool {
	switch r.URL.Query().Get("_format") {
	case "html":
		return true
	case "json":
		return false
	}
	accept := r.Header.Get("Accept")
	return strings.Contains(strings.ToLower(r.UserAgent()), "mozilla") && (accept == "" || strings.Contains(accept, "*/*"))
}

// writeExplorer writes the page that shows a JSON answer with its links and actions. The template
// engine escapes the JSON for the script it stands in.
func writeExplorer(w io.Writer, title string, body []byte) error {
	return explorerPage.Execute(w, map[string]any{"Title": title, "Data": json.RawMessage(body)})
}
