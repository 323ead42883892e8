package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/host/hostpath"
	"ankole.storage/host/mtls"
)

// askTimeout bounds a simple call, as the reference's clients do.
const askTimeout = time.Minute

// ask does something with the engine at --url and turns refusals into plain errors. timeout 0: as
// long as it takes.
func (g *globals) ask(cmd *cobra.Command, timeout time.Duration,
	f func(context.Context, enginev1.EngineClient) error) error {
	address := engineAddress(g.url)
	conn, err := g.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx := metadata.NewOutgoingContext(cmd.Context(), g.identity())
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	err = f(ctx, enginev1.NewEngineClient(conn))
	if s, ok := status.FromError(err); ok && err != nil {
		return &coded{s.Code(), fmt.Errorf("engine at %s: %s", address, s.Message())}
	}
	if errors.Is(err, enginev1.ErrNotRebuilt) || errors.Is(err, enginev1.ErrNotCloned) {
		return &coded{codes.Aborted, err}
	}
	return err
}

// dial makes the connection to the engine; it is used, and fails, with the first call.
func (g *globals) dial() (*grpc.ClientConn, error) {
	address := engineAddress(g.url)
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(mtls.Open(hostpath.Resolve(askTLSDir()), slog.New(slog.DiscardHandler)).DialAnyInstance))
	if err != nil {
		return nil, fmt.Errorf("engine at %s: %w", address, err)
	}
	return conn, nil
}

// askTLSDir is where the Pods of managers and instance managers have their certificates.
func askTLSDir() string {
	return cmp.Or(os.Getenv("ANKOLE_TLS_DIR"), os.Getenv("TLS_DIR"), "/tls-files")
}

// identity is what the engine is to compare with its own.
func (g *globals) identity() metadata.MD {
	return metadata.Pairs("volume-name", g.volume, "instance-name", g.instance)
}

// coded is an error with the engine's code. It is printed on a line of its own before the reason,
// so that a program that runs the binary learns the kind of failure without reading prose.
type coded struct {
	code codes.Code
	error
}

func (c *coded) Unwrap() error { return c.error }

// engineAddress is what --url names: a URL or just "ip:port".
func engineAddress(url string) string {
	if _, rest, ok := strings.Cut(url, "://"); ok {
		url = rest
	}
	return strings.TrimSuffix(url, "/")
}

// order asks for one thing and prints nothing.
func (g *globals) order(cmd *cobra.Command, f func(context.Context, enginev1.EngineClient) error) error {
	return g.ask(cmd, askTimeout, f)
}

// show prints what is made of the engine's state as JSON.
func (g *globals) show(cmd *cobra.Command, of func(*enginev1.State) any) error {
	return g.order(cmd, func(ctx context.Context, c enginev1.EngineClient) error {
		state, err := c.Get(ctx, &enginev1.GetRequest{})
		if err != nil {
			return err
		}
		return printJSON(cmd.OutOrStdout(), of(state))
	})
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "\t")
	return e.Encode(v)
}

// scheme is what replica addresses begin with; callers may leave it out.
const scheme = "tcp://"

func withScheme(address string) string { return scheme + strings.TrimPrefix(address, scheme) }

// labels are repeated key=value arguments.
func labels(args []string) (map[string]string, error) {
	out := make(map[string]string, len(args))
	for _, a := range args {
		key, value, ok := strings.Cut(a, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("label %q: want key=value", a)
		}
		out[key] = value
	}
	return out, nil
}

// group holds what is below a verb that does nothing by itself.
func group(use, short string, below ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return errors.New(cmd.CommandPath() + ": name one of its commands; see --help")
	}}
	c.AddCommand(below...)
	return c
}
