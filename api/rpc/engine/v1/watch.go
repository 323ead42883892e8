package enginev1

import "context"

// watchUntil looks at the engine's state, and at each that follows, until over says that there is
// no more to wait for. Its error is over's or the stream's.
func watchUntil(ctx context.Context, c EngineClient, over func(*State) (bool, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream
	watch, err := c.Watch(ctx, &GetRequest{})
	if err != nil {
		return err
	}
	for {
		state, err := watch.Recv()
		if err != nil {
			return err
		}
		if done, err := over(state); done || err != nil {
			return err
		}
	}
}
