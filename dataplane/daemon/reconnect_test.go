package daemon

import (
	"testing"
	"time"

	"google.golang.org/grpc"

	"ankole.storage/test/redial"
)

// TestWitnessIsTriedAgainSoon: an instance manager that could not be reached for some minutes, for
// want of descriptors say, is tried again within two seconds all the time: an engine that needs the
// witness holds its users' requests.
func TestWitnessIsTriedAgainSoon(t *testing.T) {
	redial.Within(t, 2*time.Second, func(t *testing.T, dial redial.Dial) (ask func() error, end func()) {
		caller := WitnessCaller{Volume: "v", VolumeUUID: "u", Engine: "e"}
		w, err := dialWitness("unix:/nowhere", caller, grpc.WithContextDialer(dial))
		if err != nil {
			t.Fatal(err)
		}
		return func() error {
			_, err := w.Read()
			return err
		}, func() { w.(*witness).conn.Close() }
	})
}
