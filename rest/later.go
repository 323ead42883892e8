package rest

import (
	"fmt"
	"net/http"
)

// later are the operations of the reference that the schema document declares and that no code
// serves yet, by "METHOD path" or "action path", with what they need. Such a request is refused
// with the name of what is missing, once its caller is known; no object offers it.
var later = map[string]string{
	"backupBackingImageCreate /v1/backingimages/{name}":        imageBackupsLater,
	"DELETE /v1/backupbackingimages/{name}":                    imageBackupsLater,
	"backupBackingImageRestore /v1/backupbackingimages/{name}": imageBackupsLater,

	"POST /v1/supportbundles":                       bundlesLater,
	"DELETE /v1/supportbundles/{node}/{name}":       bundlesLater,
	"GET /v1/supportbundles/{node}/{name}/download": bundlesLater,
	"POST /v1/systembackups":                        systemBackupLater,
	"DELETE /v1/systembackups/{name}":               systemBackupLater,
	"POST /v1/systemrestores":                       systemBackupLater,
	"DELETE /v1/systemrestores/{name}":              systemBackupLater,
}

// What operations need that are not served yet.
const (
	imageBackupsLater = "backups of backing images"
	bundlesLater      = "support bundles"
	systemBackupLater = "system backups"
)

// missing says what an operation on a route lacks, "" if it is none of the reference's either. A
// POST with an action is that action, as elsewhere.
func (t *route) missing(r *http.Request) string {
	if action := r.URL.Query().Get("action"); r.Method == http.MethodPost && action != "" {
		return later[action+" "+t.path]
	}
	return later[r.Method+" "+t.path]
}

// refuseLater refuses an operation for what it lacks.
func (q *request) refuseLater(feature string) {
	q.fail(fmt.Errorf("%s %s needs %s, which this version of Ankole does not have yet: nothing was changed", q.Method,
		q.URL.RequestURI(), feature))
}
