package witness

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	witnessv1 "ankole.storage/api/rpc/witness/v1"
)

// TestLateRefusal: a manager says that it cannot answer when it is the next one's turn, which has
// not taken the question yet. That one is asked all the same.
func TestLateRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRelay(slog.New(slog.DiscardHandler))
		late, err := r.attach("late")
		if err != nil {
			t.Fatal(err)
		}
		good, err := r.attach("good")
		if err != nil {
			t.Fatal(err)
		}
		answered := make(chan error, 1)
		go func() {
			_, err := r.ask(context.Background(), &witnessv1.Question{})
			answered <- err
		}()
		first := <-late.questions
		<-time.After(AttemptWait + AttemptWait/10)
		synctest.Wait() // it is the good one's turn
		r.deliver(late, &witnessv1.Answer{Id: first.GetId(), Code: int32(codes.Unavailable)})
		synctest.Wait()
		select {
		case q := <-good.questions:
			r.deliver(good, &witnessv1.Answer{Id: q.GetId()})
		case <-time.After(TotalWait):
			t.Error("the manager that is well was not asked")
		}
		if err := <-answered; err != nil {
			t.Error(err)
		}
	})
}
