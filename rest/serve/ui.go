package serve

import (
	"fmt"
	"net/http"

	"ankole.storage/ui"
)

// getRoot answers browsers with the web UI and programs with the versions of the API. The page
// holds nobody's data, but it asks for tokens: it comes the way that they may go.
func getRoot(q *Request) (any, error) {
	if !wantsHTML(q.Request) || q.URL.Query().Has("_format") {
		return listVersions(q)
	}
	if err := q.server.mayTravel(q.Request, &Route{}); err != nil {
		return nil, err
	}
	return ui.Page(), nil
}

// getUIFile answers with a file of the web UI. The files are the same for everybody.
func getUIFile(q *Request) (any, error) {
	file, ok := ui.File(q.Params["file"])
	if !ok {
		return nil, Refuse(http.StatusNotFound, fmt.Errorf("the web UI of this version has no file %s; load the page again",
			q.Params["file"]))
	}
	return file, nil
}
