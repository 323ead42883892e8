package rest

// later are the operations of the reference that the schema document declares and that no code
// serves yet, by "METHOD path" or "action path", with what they need. Such a request is refused
// with the name of what is missing, once its caller is known; no object offers it.
var later = map[string]string{
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
	bundlesLater      = "support bundles"
	systemBackupLater = "system backups"
)
