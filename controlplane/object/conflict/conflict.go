// Package conflict repeats a change of an object that somebody else changed in between.
//
// It stands in for client-go's retry.RetryOnConflict, which returns nil, as if the change were
// made, when the change ends with the error of a context: k8s.io/client-go/util/retry takes that
// for the end of its own waiting, and returns the last conflict, of which there is none.
package conflict

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

// attempts bounds how often a change is tried, within a second or so: controllers write a new
// object every few milliseconds, and whoever is faster for longer is a loop that runs wild.
var attempts = wait.Backoff{Steps: 8, Duration: 5 * time.Millisecond, Factor: 2, Jitter: 1}

// Retry runs change until it ends otherwise than with a conflict, and returns how it ended. change
// reads the object anew each time, and returns the API server's error as it is.
func Retry(change func() error) (err error) {
	// What it returns says no more than err does.
	_ = wait.ExponentialBackoff(attempts, func() (bool, error) {
		err = change()
		return !apierrors.IsConflict(err), nil
	})
	return err
}
