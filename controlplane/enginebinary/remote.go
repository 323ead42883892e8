package enginebinary

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// kinds are how errors travel.
var kinds = map[int]error{
	http.StatusNotFound: ErrNoBinary, http.StatusBadRequest: ErrInvalid, http.StatusTooManyRequests: ErrBusy,
	http.StatusRequestEntityTooLarge: ErrOutput,
}

// Handler has binaries run by l, for other managers. Whoever serves it admits nobody else. A caller
// that goes away ends its binary.
func Handler(l *Local) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		var r Request
		err := json.NewDecoder(http.MaxBytesReader(w, q.Body, maxRequestBytes)).Decode(&r)
		if err != nil {
			err = fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		var result Result
		if err == nil {
			result, err = l.Run(q.Context(), r)
		}
		if err != nil {
			status := http.StatusServiceUnavailable
			for s, kind := range kinds {
				if errors.Is(err, kind) {
					status = s
				}
			}
			http.Error(w, err.Error(), status)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(result) // the caller is gone if this fails
	})
}

// Remote has binaries run on nodes by their managers.
type Remote struct {
	// Address returns "ip:port" of the manager of a node.
	Address func(ctx context.Context, node string) (string, error)
	// Client shows managers' certificates.
	Client *http.Client
}

// maxAnswerBytes bounds an answer: MaxOutputBytes in base64, and the rest.
const maxAnswerBytes = MaxOutputBytes*4/3 + 2*maxMessageBytes + 4096

// Run runs a binary on a node to its end; as Local.Run. The end of ctx ends it there too.
func (m *Remote) Run(ctx context.Context, node string, r Request) (Result, error) {
	fail := func(err error) (Result, error) {
		return Result{}, fmt.Errorf("run the engine binary of %s on node %s: %w", r.Image, node, err)
	}
	if err := r.check(); err != nil {
		return fail(err)
	}
	address, err := m.Address(ctx, node)
	if err != nil {
		return fail(err)
	}
	body, err := json.Marshal(r)
	if err != nil {
		return fail(err)
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+address+Path, bytes.NewReader(body))
	if err != nil {
		return fail(err)
	}
	answer, err := m.Client.Do(q)
	if err != nil {
		return fail(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswerBytes))
	if err != nil {
		return fail(err)
	}
	if answer.StatusCode != http.StatusOK {
		err := refusal(answer.StatusCode, text)
		if ctx.Err() != nil { // the answer to that may come before the end of the call
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		return fail(err)
	}
	var result Result
	if err := json.Unmarshal(text, &result); err != nil {
		return fail(fmt.Errorf("answer of the manager at %s: %w", address, err))
	}
	return result, nil
}

// refusal is an error that a manager answered with; its text names the kind already.
func refusal(status int, text []byte) error {
	message := strings.TrimSpace(string(text))
	kind := kinds[status]
	if kind == nil {
		return fmt.Errorf("status %d: %s", status, message)
	}
	if rest, found := strings.CutPrefix(message, kind.Error()); found {
		return fmt.Errorf("%w%s", kind, rest)
	}
	return fmt.Errorf("%w: %s", kind, message)
}
