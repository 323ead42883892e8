package serve

import (
	"fmt"
	"net/http"
)

// missing says what an operation on a route lacks, "" if it is none of the reference's either. A
// POST with an action is that action, as elsewhere.
func (s *Server) missing(r *http.Request, t *Route) string {
	if action := r.URL.Query().Get("action"); r.Method == http.MethodPost && action != "" {
		return s.table.Later[action+" "+t.Path]
	}
	return s.table.Later[r.Method+" "+t.Path]
}

// refuseLater refuses an operation for what it lacks.
func (q *Request) refuseLater(feature string) {
	q.fail(fmt.Errorf("%s %s needs %s, which this version of Ankole does not have yet: nothing was changed", q.Method,
		q.URL.RequestURI(), feature))
}
